"""Rebuilds requests and their parents from hops, and computes a ledger of where the time of each request went."""
