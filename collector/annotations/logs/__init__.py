"""Reads logs: a module for each format, recognised from the lines themselves."""
