"""Puts load on an object store and measures how it responds."""
