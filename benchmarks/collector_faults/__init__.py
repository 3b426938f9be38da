"""The parts of `python -m benchmarks.collector_faults`."""
