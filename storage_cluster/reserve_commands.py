"""`tracer cluster reserve`: reserve throughput and space of the bundled store, on the host of its clients."""

import json
import sys
import time
from typing import Any

import click

from storage_cluster import book_api
from storage_cluster import topology as topologies
from storage_cluster.errors import NotRunningError
from storage_cluster.hosts import cluster
from storage_cluster.hosts.state import default_state_dir
from storage_cluster.operator import operator_errors
from storage_cluster.s3.signatures import Credentials
from storage_cluster.servers.reservations.claims import ClaimError, format_time, parse_time


class Moment(click.ParamType):
    """A moment in ISO 8601, UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds since 1970."""
        try:
            return float(value) if isinstance(value, float) else parse_time(value)
        except ClaimError as error:
            self.fail(str(error), param, ctx)


_START = click.option("--start", type=Moment(), help="From when, ISO 8601, UTC.  [default: now]")
_SECONDS = click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), required=True, help="For how long, from the start on."
)
_USER = click.option("--user", metavar="ACCOUNT:NAME", help="Whose it is.  [default: the topology's first user]")


@click.group()
def command() -> None:
    """Reserve throughput and space of the store, for a time.

    Needs a topology with the service `reservations` and media that state their throughput: `up --topology papio`.
    """


@command.command()
@click.argument("direction", type=click.Choice(("read", "write")))
@click.argument("what", metavar="BUCKET[/KEY]")
@click.argument("mb_per_s", type=click.FloatRange(min=0, min_open=True))
@_START
@_SECONDS
@_USER
def access(direction: str, what: str, mb_per_s: float, start: float | None, seconds: float, user: str | None) -> None:
    """Reserve MB_PER_S for reading an object, or for writing to a bucket; prints the id.

    Requests use it that name the id in the header X-Papio-Access-ID.
    """
    bucket, _, key = what.partition("/")
    fields = {"bucket": bucket, "direction": direction, "mb_per_s": mb_per_s, **_times(start, seconds)}
    made = _ask("POST", "/v1/accesses", fields | ({"key": key} if key else {}), user)
    click.echo(made["id"])
    click.echo(_access_text(made), err=True)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object.")
@_USER
def list_command(as_json: bool, user: str | None) -> None:
    """Show what is reserved and has not ended."""
    accesses, spaces = _ask("GET", "/v1/accesses", None, user), _ask("GET", "/v1/spaces", None, user)
    if as_json:
        click.echo(json.dumps({"accesses": accesses, "spaces": spaces}, indent=1))
        return
    for each in accesses:
        click.echo(f"{each['id']}  {_access_text(each)}")
    for each in spaces:
        base = f", {each['base_mb_per_s']:g} MB/s for each access" if each["base_mb_per_s"] else ""
        click.echo(f"{each['id']}  {each['bytes']:,} bytes for {each['bucket']}{base}, {_time_text(each)}")
    if not accesses and not spaces:
        click.echo("Nothing is reserved.")


@command.command()
@click.argument("reservation_id", metavar="ID")
@_USER
def cancel(reservation_id: str, user: str | None) -> None:
    """Give back what a reservation holds. A bucket's space ends with the bucket too."""
    listed = {kind: _ask("GET", f"/v1/{kind}", None, user) for kind in ("accesses", "spaces")}
    kind = next((kind for kind, each in listed.items() if reservation_id in [one["id"] for one in each]), None)
    if kind is None:
        with operator_errors():
            raise NotRunningError(f"there is no reservation {reservation_id!r}", "see: tracer cluster reserve list")
    _ask("DELETE", f"/v1/{kind}/{reservation_id}", None, user)
    click.echo("Given back.")


def _ask(method: str, path: str, fields: dict[str, Any] | None, user: str | None) -> Any:
    """The book's answer. The book is reached only on the cluster's hosts: so the command starts again on one."""
    with operator_errors():
        state_dir = default_state_dir()
        running = cluster.status(state_dir)
        if not any(cluster.inside(host) for host in running.hosts):
            cluster.execute(state_dir, running.client_host, (sys.executable, *sys.argv))
        topology = topologies.load(state_dir / "topology.toml")
        book = topology.reservation_book
        if book is None:
            raise NotRunningError(
                "this cluster has no book of reservations", "bring one up: tracer cluster up --topology papio"
            )
        users = {f"{each.account}:{each.name}": each.key for each in topology.users}
        name = user or next(iter(users))
        if name not in users:
            raise NotRunningError(f"there is no user {name!r}", f"the users are: {', '.join(users)}")
        return book_api.ask(f"http://{book.address}:{book.port}", Credentials(name, users[name]), method, path, fields)


def _times(start: float | None, seconds: float) -> dict[str, str]:
    start_s = time.time() if start is None else start
    return {"start": format_time(start_s), "end": format_time(start_s + seconds)}


def _access_text(made: dict[str, Any]) -> str:
    what = made["bucket"] + (f"/{made['key']}" if made["key"] else "")
    rates = ", ".join(f"{place} {rate / 1e6:.1f}" for place, rate in sorted(made["rates"].items()))
    return f"{made['direction']} {what} at {made['mb_per_s']:g} MB/s ({rates}), {_time_text(made)}"


def _time_text(made: dict[str, Any]) -> str:
    return f"{made['start']} to {made['end']}"
