"""Exports a trace to the formats of other tools."""
