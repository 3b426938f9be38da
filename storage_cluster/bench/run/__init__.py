"""Carrying a workload out: who asks for what, when, until when."""
