"""The tables of a trace, their columns, and traces on disk, for use by all other folders."""
