"""`tracer cluster`: start, stop and use the bundled object store."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import click

from storage_cluster import topology as topologies
from storage_cluster.errors import ClusterError, NotPermittedError, NotRunningError
from storage_cluster.hosts import cluster
from storage_cluster.hosts.state import default_state_dir
from storage_cluster.ring import Ring
from tracer.errors import PrivilegeError, ResourceError, ServiceError


@click.group()
def command() -> None:
    """Start, stop and use the bundled object store.

    Five hosts on this machine (client, proxy, storage1 to storage3) as network namespaces, joined by links that split
    and merge packets as network cards do. Works as root and, where the kernel allows, as an ordinary user.
    """


@command.command()
@click.option("--topology", "topology_file", type=click.Path(path_type=Path, dir_okay=False), help="Another topology.")
def up(topology_file: Path | None) -> None:
    """Bring the cluster up; does nothing if it is up."""
    state_dir = default_state_dir()
    with operator_errors():
        started = cluster.up(state_dir, topology_file)
        running = cluster.status(state_dir)
    click.echo("The cluster is up." if started else "The cluster was up already.")
    _print_status(running)
    click.echo(f"\nTry: tracer cluster exec {running.client_host} -- swift upload photos FILE")


@command.command()
@click.option("--keep-data", is_flag=True, help="Keep the objects for the next `up`.")
@click.option("--keep-logs", is_flag=True, help="Keep the servers' logs.")
def down(keep_data: bool, keep_logs: bool) -> None:
    """Stop the cluster and remove all that it made."""
    with operator_errors():
        stopped = cluster.down(default_state_dir(), keep_data=keep_data, keep_logs=keep_logs)
    click.echo("The cluster is down." if stopped else "No cluster was up.")


@command.command()
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object.")
def status(as_json: bool) -> None:
    """Show hosts, addresses and servers; exit 2 if no cluster is up."""
    with operator_errors():
        running = cluster.status(default_state_dir())
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(running), indent=1))
    else:
        _print_status(running)


@command.command("exec", context_settings={"ignore_unknown_options": True})
@click.argument("host")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
def execute(host: str, argv: tuple[str, ...]) -> None:
    """Run COMMAND on HOST; its exit status is ours.

    On the client host ST_AUTH, ST_USER and ST_KEY are set, so `swift` needs no options.
    """
    with operator_errors():
        cluster.execute(default_state_dir(), host, argv)


@command.command()
@click.argument("path", required=False, metavar="[ACCOUNT[/CONTAINER[/OBJECT]]]")
def ring(path: str | None) -> None:
    """Show where a path's replicas live, or how much each device holds."""
    shown = topologies.load(topologies.BUNDLED_FILE)
    running = default_state_dir() / "topology.toml"
    with operator_errors():
        shown = topologies.load(running) if running.exists() else shown
    names = (path or "").strip("/")
    if names:
        _print_placement(shown, names.split("/", 2))
    else:
        _print_shares(shown)


@contextlib.contextmanager
def operator_errors() -> Iterator[None]:
    """Turn the cluster's errors into those that the command line prints in one line."""
    try:
        yield
    except NotPermittedError as error:
        raise PrivilegeError(error.what, error.next_step) from None
    except NotRunningError as error:
        raise ServiceError(error.what, error.next_step) from None
    except ClusterError as error:
        raise ResourceError(error.what, error.next_step) from None


def _print_status(running: cluster.ClusterStatus) -> None:
    for host in running.hosts:
        services = ", ".join(
            f"{service.name}:{service.port}" + ("" if service.alive else " (dead)") for service in host.services
        )
        click.echo(f"  {host.host:<10} {' '.join(host.addresses):<12} {services}".rstrip())


def _print_placement(shown: topologies.Topology, parts: list[str]) -> None:
    name = topologies.RING_SERVICES[len(parts) - 1]
    made = Ring(name, shown.devices, shown.ring)
    partition = made.partition(*parts)
    click.echo(f"{name} ring, partition {partition} of {made.partition_count}")
    for device in made.primaries(partition):
        click.echo(f"  {device.host}/{device.name}  zone {device.zone}")
    for device in made.handoffs(partition):
        click.echo(f"  {device.host}/{device.name}  zone {device.zone}  handoff")


def _print_shares(shown: topologies.Topology) -> None:
    rings = [Ring(name, shown.devices, shown.ring) for name in topologies.RING_SERVICES]
    click.echo(f"{rings[0].partition_count} partitions, {shown.ring.replicas} replicas; replicas held by each device:")
    click.echo(f"  {'device':<14} {'zone':>4} {'weight':>6} " + " ".join(f"{ring.name:>9}" for ring in rings))
    for device in shown.devices:
        held = [sum(device in made.primaries(p) for p in range(made.partition_count)) for made in rings]
        counts = " ".join(f"{count:>9}" for count in held)
        click.echo(f"  {device.host + '/' + device.name:<14} {device.zone:>4} {device.weight:>6g} {counts}")
