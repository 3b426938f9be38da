"""Faults on demand: what can go wrong in a real cluster, made to go wrong here, each one recorded with its times."""
