"""Faults on demand: faults of real clusters, injected here, each one recorded with its times."""
