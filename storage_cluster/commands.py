"""`tracer cluster`: start, stop and use the bundled object store."""

import dataclasses
import json
import sys

import click

from storage_cluster import convergence
from storage_cluster import topology as topologies
from storage_cluster.faults.commands import command as fault_command
from storage_cluster.hosts import cluster
from storage_cluster.hosts.state import default_state_dir
from storage_cluster.operator import operator_errors
from storage_cluster.reserve_commands import command as reserve_command
from storage_cluster.ring_commands import command as ring_command


@click.group()
def command() -> None:
    """Start, stop and use the bundled object store.

    Hosts on this machine (client, proxy, storage1 to storage3, or another topology's) as network namespaces, joined by
    links that split and merge packets as network cards do. Works as root and, where the kernel allows, as an ordinary
    user.
    """


command.add_command(fault_command)
command.add_command(ring_command)
command.add_command(reserve_command, "reserve")


@command.command()
@click.option(
    "--topology",
    metavar="NAME|FILE",
    default="six-hosts",
    show_default=True,
    help=f"The cluster's shape: {', '.join(topologies.bundled_names())}, or a TOML file.",
)
@click.option("--no-daemons", is_flag=True, help="No traffic but what requests cause: only the updaters run.")
def up(topology: str, *, no_daemons: bool) -> None:
    """Bring the cluster up; does nothing if it is up."""
    state_dir = default_state_dir()
    with operator_errors():
        if cluster.was_interrupted(state_dir):
            click.echo(f"tracer: removing what a cluster that was killed left in {state_dir}", err=True)
        started = cluster.up(state_dir, topologies.find(topology), quiet=no_daemons)
        running = cluster.status(state_dir)
    click.echo("The cluster is up." if started else "The cluster was up already.")
    _print_status(running)
    has_swift = "ST_AUTH" in running.environment
    first = "swift upload photos FILE" if has_swift else f"tracer bench run put --s3 {running.s3[0].url}"
    click.echo(f"\nTry: tracer cluster exec {running.client_host} -- {first}")


@command.command()
@click.option("--keep-data", is_flag=True, help="Keep the objects for the next `up`.")
@click.option("--keep-logs", is_flag=True, help="Keep the servers' logs.")
def down(keep_data: bool, keep_logs: bool) -> None:
    """Stop the cluster and remove everything that it created."""
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
    """Run COMMAND on HOST, and exit with its status.

    On the client host ST_AUTH, ST_USER and ST_KEY are set, so `swift` needs no options.
    """
    with operator_errors():
        cluster.execute(default_state_dir(), host, argv)


@command.command()
@click.option("--wait", "patience_s", type=click.FloatRange(min=0), default=0.0, help="Seconds to wait for that.")
def check(patience_s: float) -> None:
    """Check that every replica is where it belongs and the same on each device; exit 1 if not.

    Reads the devices themselves, with the cluster up or its data kept. What was written a moment ago may still be on
    its way: --wait looks again and again.
    """
    state_dir = default_state_dir()
    with operator_errors():
        rings = cluster.load_rings(state_dir)
    found = convergence.await_agreement(cluster.rings_file(state_dir).parent, rings, patience_s)
    for line in found:
        click.echo(line)
    click.echo(f"{len(found)} disagreements" if found else "All replicas agree.")
    sys.exit(1 if found else 0)


def _cache_text(cache: cluster.CacheStatus) -> str:
    """The state of a gateway's object cache; empty if it is off, or nothing was read yet."""
    reads = cache.hits + cache.misses
    if not reads or not cache.room_bytes:
        return ""
    held = f"{cache.bytes / 1e6:.1f} of {cache.room_bytes / 1e6:.1f} MB in {cache.objects:,} objects"
    return f"  cache {held}, {cache.hits / reads:.0%} of {reads:,} reads"


def _print_status(running: cluster.ClusterStatus) -> None:
    for host in running.hosts:
        services = ", ".join(
            service.name + (f":{service.port}" if service.port else "") + ("" if service.alive else " (dead)")
            for service in host.services
        )
        click.echo(f"  {host.host:<10} {' '.join(host.addresses):<12} {services}".rstrip())
    for gateway in running.s3:
        click.echo(
            f"  S3 {gateway.url}  key {gateway.access_key}  secret {gateway.secret_key}{_cache_text(gateway.cache)}"
        )
    for fault in running.faults:
        click.echo(f"  fault {fault.id}: {fault.text}")
