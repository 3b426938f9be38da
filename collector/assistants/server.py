"""Serves `TraceTools` by the Model Context Protocol, on standard input and output.

Source: modelcontextprotocol.io, by its Python SDK, version 2.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from collector.assistants.tools import INSTRUCTIONS, TraceTools
from tracer.errors import TracerError

NAMES = (
    *("report", "find", "why", "compare", "compare_hosts", "what_if"),
    *("tables", "query", "packets", "sequence_diagram"),
)
"""Methods of `TraceTools` that are tools."""
READS_ONLY = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
Given = ParamSpec("Given")


def build_server(tools: TraceTools, version: str) -> MCPServer:
    """The server of one trace's tools, all marked as reading only."""
    server = MCPServer("twintap", title="Twintap", instructions=INSTRUCTIONS, version=version, log_level="WARNING")
    for name in NAMES:
        server.tool(annotations=READS_ONLY, structured_output=False)(_with_clear_errors(getattr(tools, name)))
    return server


def _with_clear_errors(method: Callable[Given, str]) -> Callable[Given, str]:
    """The method, whose errors say in one line what to do about them."""

    @functools.wraps(method)
    def call(*arguments: Given.args, **named: Given.kwargs) -> str:
        try:
            return method(*arguments, **named)
        except TracerError as error:
            raise ToolError(str(error)) from None

    return call
