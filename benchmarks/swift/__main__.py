"""`python -m benchmarks.swift`: OpenStack Swift up, down, status, exec."""

import os
from pathlib import Path

import click

from benchmarks.swift import compare, cost, functional, hosts
from storage_cluster.hosts import state


@click.group()
def command() -> None:
    """Run OpenStack Swift from Debian's packages on hosts like the bundled cluster's. As root."""


@command.command()
@click.option("--daemons", is_flag=True, help="Also updaters, expirer and reaper, in short rounds.")
def up(daemons: bool) -> None:
    """Set it up."""
    hosts.up(daemons=daemons)
    click.echo("Swift is up. Try: python -m benchmarks.swift exec client -- swift stat")


@command.command()
def down() -> None:
    """End all of it and remove its files."""
    click.echo("Swift is down." if hosts.down() else "No Swift was up.")


@command.command()
def status() -> None:
    """What runs where."""
    for host, line in hosts.processes(hosts.load()):
        click.echo(f"{host:<9} {line}")


@command.command("exec", context_settings={"ignore_unknown_options": True})
@click.argument("host")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(host: str, argv: tuple[str, ...]) -> None:
    """Run a command on a host; on the client with ST_AUTH, ST_USER, ST_KEY set."""
    enter = hosts.load().enter(host)
    os.execvpe(enter[0], [*enter, *argv], os.environ | (hosts.environment() if host == "client" else {}))


@command.command("compare")
@click.option("--topology", type=click.Path(path_type=Path, dir_okay=False), help="For the bundled cluster.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--duration", "duration_s", default=5.0, show_default=True, help="Seconds of each run.")
@click.option("--nice", default=0, show_default=True, help="Priority of both stores and the client, on a busy machine.")
@click.argument("only", nargs=-1)
def compare_stores(topology: Path | None, rounds: int, duration_s: float, nice: int, only: tuple[str, ...]) -> None:
    """PUT and GET of 1 KiB and 1 MiB on both stores; ONLY scenarios that contain one of these words."""
    compare.compare(topology, rounds, duration_s, nice, only)


@command.command("cost")
@click.option("--rounds", default=2, show_default=True)
@click.option("--duration", "duration_s", default=5.0, show_default=True, help="Seconds of each run.")
def measure_cost(rounds: int, duration_s: float) -> None:
    """Processor time of each server for a PUT of 1 KB and 1 MB: sets Swift up, measures, takes it down."""
    cost.measure(rounds, duration_s)


@command.command("functional")
@click.argument("source", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("only", nargs=-1, type=click.Choice(functional.MODULES))
def run_functional_tests(source: Path, only: tuple[str, ...]) -> None:
    """Swift's own tests, from its source tree SOURCE, here and on the bundled cluster, both up; ONLY some modules."""
    functional.run(source.resolve(), state.default_state_dir(), only)


if __name__ == "__main__":
    command()
