"""Series: the traces of successive periods, and the summaries that stay when a trace is removed."""
