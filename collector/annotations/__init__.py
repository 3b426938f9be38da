"""What logs and other tracers say: read, put on the trace's timescale, and joined to the requests that it is about."""
