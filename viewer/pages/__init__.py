"""The pages beside the timeline: a trace's requests as a crowd, its services, load, and another trace beside it.

One module for each page: the trace and the address in, Dash components out.
"""
