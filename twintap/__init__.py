"""Traces in Python: tables as Polars or Arrow, SQL, the report, why a request was slow, and what would be otherwise.

    import twintap

    trace = twintap.open("traces/monday")
    slow = trace.requests("duration_ms > 50").to_polars()

docs/python.md has more.
"""

from tracer.errors import TracerError as Error
from tracer.installation import install_command

try:
    from collector.queries.what_if import Changes
    from twintap.rows import Rows
    from twintap.trace import Trace, open
except ModuleNotFoundError as error:  # an agent's host has none of it
    raise ImportError(f"{error.name} is not installed; run: {install_command('collector')}") from error

__all__ = ["Changes", "Error", "Rows", "Trace", "open"]
