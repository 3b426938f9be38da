"""Runs a workload: which worker sends which request, and when."""
