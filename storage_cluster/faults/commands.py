"""`tracer cluster fault`: injects, shows and clears faults."""

import dataclasses
import json
import time
from pathlib import Path

import click

from storage_cluster.faults import control, log
from storage_cluster.faults.kinds import KINDS, Fault, Parameters
from storage_cluster.faults.units import DRIFT, DURATION, FRACTION, RATE
from storage_cluster.hosts import cluster
from storage_cluster.hosts.state import default_state_dir
from storage_cluster.operator import operator_errors

_KINDS_TEXT = "\n".join(f"  {name:<10} {kind.target.value:<15} {kind.meaning}" for name, kind in KINDS.items())


@click.group("fault")
def command() -> None:
    """Inject faults into the running cluster, each with a record of when it began and ended."""


@command.command(
    context_settings={"max_content_width": 120},
    epilog="\b\nKINDS, their targets and their effects:\n" + _KINDS_TEXT + "\n\n\b\n"
    "Times like 200ms or 5s, rates like 10mbit, fractions like 1% or 0.01, drifts like 100ppm.\n"
    "Start and end of each fault are kept in faults.jsonl in the cluster's directory.",
)
@click.argument("kind", type=click.Choice(list(KINDS)), metavar="KIND")
@click.argument("target")
@click.option("--for", "for_ns", type=DURATION, help="Clear it after this time.  [default: until cleared]")
@click.option("--after", "after_ns", type=DURATION, default=0, help="Inject it after this time.  [default: now]")
@click.option("--peer", metavar="HOST", help="cut, drop, delay, reorder: only packets to and from this host.")
@click.option(
    "--direction", type=click.Choice(["to", "from", "both"]), help="drop, delay, reorder: to or from the target."
)
@click.option("--probability", type=FRACTION, help="drop, reorder, bad-disk: how often.")
@click.option("--delay", "delay_ns", type=DURATION, help="delay, reorder: how long, each way.")
@click.option("--jitter", "jitter_ns", type=DURATION, help="delay: ± this much, evenly spread; order is kept.")
@click.option("--rate", "rate_bits_per_s", type=RATE, help="bandwidth: what the link carries, each way.")
@click.option("--share", "cpu_share", type=FRACTION, help="cpu: of one core.")
@click.option("--backlog", "backlog_count", type=click.IntRange(0), help="backlog: connections.  [default: 1]")
@click.option("--offset", "offset_ns", type=DURATION, help="clock: how far ahead (negative: behind).")
@click.option("--drift", "drift_ppb", type=DRIFT, help="clock: how much too fast (negative: too slow).")
@click.option("--latency", "latency_ns", type=DURATION, help="slow-disk: more for each transfer.  [default: 50ms]")
@click.option("--seed", type=int, help="delay, reorder, bad-disk, bit-rot: of its random numbers.")
def add(*, kind: str, target: str, for_ns: int | None, after_ns: int, **parameters: str | float | int | None) -> None:
    """Inject a fault of this KIND on TARGET, and print its number."""
    fault = Fault(kind, target, Parameters(**parameters), after_ns, for_ns)  # type: ignore[arg-type]
    state_dir = default_state_dir()
    with operator_errors():
        (number,) = control.ask(_running(), {"order": "add", "fault": dataclasses.asdict(fault)})
    record = next(record for record in log.read(state_dir) if record.id == number)
    click.echo(f"fault {number}: {record.fault.text()}")


@command.command("list")
@click.option("--all", "with_ended", is_flag=True, help="Those that have ended, too; also when no cluster is up.")
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON array.")
def show(with_ended: bool, as_json: bool) -> None:
    """Show the faults that are in force or planned."""
    with operator_errors():
        state_dir = default_state_dir() if with_ended else _running()
    records = [record for record in log.read(state_dir) if with_ended or record.state != "ended"]
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(record) | {"state": record.state} for record in records], indent=1))
        return
    for record in records:
        click.echo(f"{record.id:>4}  {record.state:<8} {_age(record):<24} {record.fault.text()}")
    if not records:
        click.echo("There is no fault.")


@command.command()
@click.argument("number", type=int, required=False, metavar="[ID]")
@click.option("--all", "everything", is_flag=True, help="All of them.")
def clear(number: int | None, everything: bool) -> None:
    """Undo one fault, or all."""
    if (number is None) != everything:
        raise click.UsageError("Give either the number of a fault or --all.")
    with operator_errors():
        ids = control.ask(_running(), {"order": "clear", "ids": None if number is None else [number]})
    click.echo(f"cleared: {', '.join(map(str, ids))}" if ids else "There was no fault.")


def _running() -> Path:
    """The state directory of the cluster that is up. Raises: NotRunningError."""
    state_dir = default_state_dir()
    cluster.status(state_dir)
    return state_dir


def _age(record: log.Record) -> str:
    now_ns = time.time_ns()
    if record.started_ns is None:
        return f"in {(record.planned_ns + record.fault.after_ns - now_ns) / 1e9:.1f} s"
    lasted_s = ((record.ended_ns or now_ns) - record.started_ns) / 1e9
    return f"for {lasted_s:.1f} s" + (f", {record.how}" if record.how else "")
