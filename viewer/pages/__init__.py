"""The pages beside the timeline: statistics of a trace's requests, its services, its load, and comparisons.

One module for each page: the trace and the address in, Dash components out.
"""
