"""One timescale for all hosts, with an error bar."""
