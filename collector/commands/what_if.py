"""`tracer what-if`: how long requests would have taken if the network or a server were otherwise."""

import json

import click
from msgspec import to_builtins

from collector.commands.read_counts import say_reads
from collector.queries.trace_view import open_trace
from collector.queries.what_if import Changes, Forecast, what_if
from collector.queries.what_if_text import show_forecast
from collector.reporting.console import new_console
from tracer.errors import InputError

PAIR, FACTOR = "HOST=HOST", "HOST=FACTOR"


@click.command("what-if")
@click.option("--quorum", type=int, metavar="N", help="Who asks several servers at once goes on after N answers.")
@click.option("--no-loss", is_flag=True, help="Nothing has to be sent again.")
@click.option("--nodelay", "no_delay", is_flag=True, help="No small segment waits for a delayed ACK (TCP_NODELAY).")
@click.option("--round-trip", type=float, default=1.0, metavar="FACTOR", help="Ways between hosts: 0.5 for half.")
@click.option("--as-fast", multiple=True, metavar=PAIR, help="The first is as fast as the second; may be repeated.")
@click.option("--own-time", multiple=True, metavar=FACTOR, help="A server's own time; may be repeated.")
@click.option("--search", default="", metavar="SEARCH", help="Only requests that it finds.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON instead.")
@click.argument("trace", metavar="TRACE")
def command(
    *,
    trace: str,
    quorum: int | None,
    no_loss: bool,
    no_delay: bool,
    round_trip: float,
    as_fast: tuple[str, ...],
    own_time: tuple[str, ...],
    search: str,
    as_json: bool,
) -> None:
    """Show how long the requests of TRACE would have taken if something were otherwise.

    Each is played again: what it waited for stays, what is changed takes less or more time, and a call that becomes
    quicker uncovers the next slowest. Changes may be combined.
    """
    changes = Changes(
        quorum=quorum,
        no_loss=no_loss,
        no_delay=no_delay,
        round_trip=round_trip,
        as_fast=dict(_pair(each, "--as-fast", PAIR) for each in as_fast) or None,
        own_time=dict(_factor(each) for each in own_time) or None,
    )
    found = what_if(open_trace(trace), changes, search)
    if as_json:
        click.echo(json.dumps(_plain_values(found), indent=1))
    else:
        show_forecast(found, new_console())
    say_reads(trace)


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise InputError(f"{option} {text}: not of the form {form}", "docs/what-if.md")
    return name, value


def _factor(text: str) -> tuple[str, float]:
    name, value = _pair(text, "--own-time", FACTOR)
    try:
        return name, float(value)
    except ValueError:
        raise InputError(f"--own-time {text}: {value} is no number", "--own-time storage2=0.5") from None


def _plain_values(found: Forecast) -> dict[str, object]:
    """All but the durations of single requests."""
    return {
        "changes": found.changes,
        "classes": [to_builtins(each) for each in found.classes],
        "left_count": found.left_count,
        "limits": list(found.limits),
    }
