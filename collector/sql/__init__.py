"""A trace as tables for SQL (DuckDB): views with readable names and units, read-only, limited in time and memory."""
