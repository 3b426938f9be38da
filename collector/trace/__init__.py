"""The tables of a trace, their columns, and a trace on disk; what every other room reads and writes."""
