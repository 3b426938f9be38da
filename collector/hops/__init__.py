"""Packets paired with their other end, and what happened to those that did not arrive."""
