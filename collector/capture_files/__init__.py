"""Reads capture files: the only reader of them, and the columns that it returns."""
