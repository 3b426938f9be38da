"""`tracer bench`: put load on an object store and measure it."""

import os
import sys
from pathlib import Path

import click
import uvloop

from storage_cluster.bench import load, results
from storage_cluster.bench.client import Credentials
from storage_cluster.errors import MissingResourceError
from storage_cluster.hosts import cluster
from storage_cluster.hosts.state import default_state_dir
from storage_cluster.operator import operator_errors


@click.group()
def command() -> None:
    """Put load on an object store and measure it."""


@command.command()
@click.argument("operation", type=click.Choice(["put", "get"]))
@click.option("--count", default=100, show_default=True, type=click.IntRange(1), help="Operations to do.")
@click.option("--size", "size_bytes", default=1000, show_default=True, type=click.IntRange(0), help="Bytes per object.")
@click.option("--concurrency", default=1, show_default=True, type=click.IntRange(1, 4096), help="Workers at once.")
@click.option("--retries", "retries_max", default=3, show_default=True, type=click.IntRange(0), help="Per operation.")
@click.option("--container", default="bench", show_default=True, help="Where the objects are; they stay there.")
@click.option("--auth", help="A store elsewhere: its v1 auth URL.  [default: the cluster that is up]")
@click.option("--user", default="test:tester", show_default=True, help="For --auth.")
@click.option("--key", default="testing", show_default=True, help="For --auth.")
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the summary here.")
@click.option(
    "--requests", "rows_file", type=click.Path(path_type=Path, dir_okay=False), help="Write each request here."
)
def run(
    operation: str,
    *,
    count: int,
    size_bytes: int,
    concurrency: int,
    retries_max: int,
    container: str,
    auth: str | None,
    user: str,
    key: str,
    json_file: Path | None,
    rows_file: Path | None,
) -> None:
    """Put or get objects, and report throughput, latencies and failures.

    With a cluster up it runs on the cluster's client host. The slowest requests are shown with their transaction ids;
    --requests writes every request as CSV.
    """
    plan = results.Plan(operation, count, size_bytes, concurrency, container, retries_max)
    with operator_errors():
        credentials = Credentials(auth, user, key) if auth else _credentials_on_client_host()
        _check_writable(json_file, rows_file)
        summary, rows = uvloop.run(load.run(plan, credentials))
    click.echo(results.as_text(summary))
    if json_file:
        json_file.write_text(results.as_json(summary) + "\n", "utf-8")
    if rows_file:
        with rows_file.open("w", encoding="utf-8", newline="") as stream:
            results.write_rows(rows, stream)
    if summary.failures_count:
        sys.exit(1)


def _credentials_on_client_host() -> Credentials:
    """The cluster's credentials, once this process is on its client host; otherwise it becomes one that is."""
    running = cluster.status(default_state_dir())
    client = running.host(running.client_host)
    if not cluster.inside(client):
        cluster.execute(default_state_dir(), client.host, (sys.executable, *sys.argv))
    found = running.environment
    return Credentials(found["ST_AUTH"], found["ST_USER"], found["ST_KEY"])


def _check_writable(*files: Path | None) -> None:
    """Say now, not after a long run, that a result cannot be written."""
    for file in files:
        if file is not None and not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
            raise MissingResourceError(f"{file} cannot be written", "choose another place")
