"""Requests and their parents, from hops, with a ledger of where the time of each went."""
