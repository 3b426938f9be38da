"""The parts of `python -m benchmarks.faults_of_service`."""
