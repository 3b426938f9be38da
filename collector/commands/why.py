"""`tracer why`: why a request took longer than others like it."""

import json
from collections.abc import Callable
from typing import TypeVar

import click
from msgspec import to_builtins
from rich.console import Console

from collector.commands.read_counts import say_reads
from collector.queries.comparing import compare_found, compare_servers
from collector.queries.trace_view import TraceView, open_trace
from collector.queries.why import (
    SLOWEST,
    Why,
    explain,
    explain_against_request,
    explain_against_trace,
    explain_slowest,
    find_request,
)
from collector.queries.why_text import show_groups, show_why
from collector.reporting.comparison import Comparison
from collector.reporting.console import new_console
from tracer.errors import InputError


@click.command("why")
@click.option("--against", "other", metavar="REQUEST", help="Compare with this request instead of its class.")
@click.option("--in", "other_trace", metavar="TRACE", help="Compare with its class in another trace.")
@click.option("--search", "search", metavar="SEARCH", help="Compare requests that it finds with all others.")
@click.option("--than", "than", metavar="SEARCH", help="With --search: with those that this finds.")
@click.option("--hosts", "hosts", nargs=2, metavar="HOST HOST", help="Compare the calls that two hosts answer.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON instead.")
@click.argument("trace", metavar="TRACE")
@click.argument("request", metavar="[REQUEST]", required=False)
def command(
    *,
    trace: str,
    request: str | None,
    other: str | None,
    other_trace: str | None,
    search: str | None,
    than: str | None,
    hosts: tuple[str, str] | None,
    as_json: bool,
) -> None:
    """Show where a request of TRACE lost time against others of its class, stage by stage, and what its packets show
    of the cause.

    REQUEST is a transaction id, a number as the pages show it (#12), or `slowest`; without it, the slowest that
    has others like it.

    With --search two groups of requests are compared, with --hosts two servers: the means of each stage, and which
    differences are more than noise. Those of the first group against the second.
    """
    asked = [request is not None, other is not None, other_trace is not None, search is not None, bool(hosts)]
    if sum(asked[1:]) > 1 or (asked[0] and any(asked[3:])):
        what = "a request, --against, --in, --search and --hosts are several comparisons"
        raise InputError(what, "give one; --against and --in may have a request beside them")
    if than is not None and search is None:
        raise InputError("--than is what --search is compared with", "give both")
    view, console = open_trace(trace), new_console()
    if search is None and not hosts:
        why = _explanation(view, request, other, other_trace)
        _show(why, console, show_why, as_json=as_json)
    else:
        found = compare_servers(view, *hosts) if hosts else compare_found(view, search or "", than or "")
        _show(found, console, show_groups, as_json=as_json)
    say_reads(trace, *([other_trace] if other_trace else []))


Shown = TypeVar("Shown", Why, Comparison)


def _show(found: Shown, console: Console, show: Callable[[Shown, Console], None], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(to_builtins(found), indent=1))
    else:
        show(found, console)


def _explanation(view: TraceView, request: str | None, other: str | None, other_trace: str | None) -> Why:
    if request is None and other is None and other_trace is None:
        return explain_slowest(view)
    number = find_request(view, request or SLOWEST)
    if other is not None:
        return explain_against_request(view, number, find_request(view, other))
    if other_trace is not None:
        return explain_against_trace(view, number, open_trace(other_trace))
    return explain(view, number)
