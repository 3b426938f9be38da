"""Distributes work over cores, memory and disk; independent of the contents of a trace."""
