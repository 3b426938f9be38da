"""The option `--search` of commands that can do with some of a trace's requests."""

import click

from collector.queries.search import found_roots
from collector.queries.trace_view import open_trace
from collector.reporting.request_rows import RootIds

search_option = click.option(
    "--search", "search", metavar="SEARCH", help="Only requests that it finds: 'PUT host:db1 not status:ok'."
)


def found_by(trace: str, search: str | None) -> RootIds | None:
    """The `trace_id`s of the requests that a search finds; None without one, for all.

    Raises: `InputError` for a search that makes no sense or finds no request.
    """
    return None if search is None else found_roots(open_trace(trace), search)
