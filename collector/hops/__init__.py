"""Matches the sends and receives of packets across hosts, and explains those that did not arrive."""
