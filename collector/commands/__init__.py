"""The subcommands of `tracer` that this package has."""
