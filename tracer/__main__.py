"""`python -m tracer`: the same as `tracer`, for programs that start it with their own interpreter."""

from tracer.cli import main

main()
