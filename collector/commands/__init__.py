"""The subcommands of `tracer` that the collector provides."""
