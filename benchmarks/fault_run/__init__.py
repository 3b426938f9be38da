"""The parts of `python -m benchmarks.faults`."""
