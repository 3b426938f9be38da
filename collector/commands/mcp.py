"""`tracer mcp`: a trace for assistants that speak the Model Context Protocol."""

from importlib.metadata import version

import click

from collector.assistants.server import build_server
from collector.assistants.tools import TraceTools


@click.command("mcp")
@click.argument("trace", metavar="TRACE")
def command(*, trace: str) -> None:
    """Serve TRACE to an assistant by the Model Context Protocol, on standard input and output, until these close.

    The assistant starts this command itself. Its tools only read: the report, searches, why a request is slow,
    comparisons, SQL, packets, sequence diagrams.
    """
    build_server(TraceTools(trace), version("twintap")).run()
