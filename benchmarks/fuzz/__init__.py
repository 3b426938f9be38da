"""The parts of `python -m benchmarks.fuzz`."""
