"""`tracer cluster ring`: where things lie, how full devices are, and changes to the rings.

A change is written to the ring file; the servers take it up within a second, and the replicators then move the data.
Between the two, reads find what has not moved yet on its old device, which the new ring counts among the handoffs.
"""

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

import click

from storage_cluster import ring as rings
from storage_cluster import ring_builder
from storage_cluster import topology as topologies
from storage_cluster.errors import MissingResourceError
from storage_cluster.hosts import cluster
from storage_cluster.hosts.state import default_state_dir
from storage_cluster.operator import operator_errors
from storage_cluster.policies import POLICY_INDEX, ring_name
from storage_cluster.ring import Ring, path_hash
from storage_cluster.servers.disks import layout
from storage_cluster.services import RING_SERVICES
from storage_cluster.topology import Device, Topology


class PathGroup(click.Group):
    """A command group that shows a path if the first word is no subcommand."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand; if there is none, pass the words to `show`."""
        if args and args[0] in self.commands:
            return super().resolve_command(ctx, args)
        return "show", self.commands["show"], args


@click.group("ring", cls=PathGroup, invoke_without_command=True, subcommand_metavar="[PATH | COMMAND ...]")
@click.pass_context
def command(context: click.Context) -> None:
    """Show where a path's replicas live, or how much each device holds; change the rings.

    PATH is ACCOUNT, ACCOUNT/CONTAINER or ACCOUNT/CONTAINER/OBJECT, for example AUTH_test/photos/cat.
    """
    if context.invoked_subcommand is None:
        with operator_errors():
            _print_shares(*_current())


@command.command()
@click.argument("path", metavar="PATH")
@click.option("--policy", metavar="NAME", default="", help="The storage policy of the object's container. [default: 0]")
def show(path: str, policy: str) -> None:
    """Show a path's partition, its primaries and handoffs, where its files lie, and how to ask each server."""
    with operator_errors():
        topology, made = _current()
        _print_placement(topology, made, tuple(path.strip("/").split("/", 2)), _policy_index(topology, policy))


def _policy_index(topology: Topology, name: str) -> int:
    """The index of a storage policy; 0 if none is named. Raises: MissingResourceError."""
    found = topology.policies.by_name(name) if name else topology.policies.at(0)
    if found is None:
        names = ", ".join(policy.name for policy in topology.policies)
        raise MissingResourceError(f"there is no storage policy {name!r}", f"there are: {names}")
    return found.index


@command.command()
def rebalance() -> None:
    """Spread the partitions again, moving as few as possible (add, remove and set-weight do so too)."""
    with operator_errors():
        _change(lambda devices: devices)


@command.command("set-weight")
@click.argument("device", metavar="HOST/DEVICE")
@click.argument("weight", type=click.FloatRange(min=0))
def set_weight(device: str, weight: float) -> None:
    """Give a device another share of the data; 0 empties it."""
    with operator_errors():
        host, name = _split(device)
        _change(lambda devices: _replace(devices, host, name, weight))


@command.command()
@click.argument("device", metavar="HOST/DEVICE")
@click.option("--weight", type=click.FloatRange(min=0), default=1.0, show_default=True, help="Share of the data.")
@click.option("--zone", type=int, help="Zone number.  [default: that of the host's other devices]")
def add(device: str, weight: float, zone: int | None) -> None:
    """Add a device to a storage host that is up."""
    with operator_errors():
        host, name = _split(device)
        _change(lambda devices: _add(devices, Device(host, name, _zone(host, zone), weight)))


@command.command()
@click.argument("device", metavar="HOST/DEVICE")
def remove(device: str) -> None:
    """Remove a device from the rings; its data is moved to the other devices."""
    with operator_errors():
        host, name = _split(device)
        _change(lambda devices: _remove(devices, host, name))


def _current() -> tuple[Topology, dict[str, Ring]]:
    """The rings of the cluster that is up or whose data was kept; otherwise those that `up` would make."""
    state_dir = default_state_dir()
    running = state_dir / "topology.toml"
    topology = topologies.load(running if running.exists() else topologies.BUNDLED_FILE)
    if cluster.rings_file(state_dir).exists() or len(topology.stores) > 1:
        return topology, cluster.load_rings(state_dir)
    return topology, {ring.name: ring for ring in ring_builder.build_all(topology)}


def _print_placement(topology: Topology, made: dict[str, Ring], names: tuple[str, ...], policy: int) -> None:
    kind = RING_SERVICES[len(names) - 1]
    ring = made[ring_name(policy) if kind == "object" else kind]
    partition = ring.partition(*names)
    digest = path_hash(names, ring.shape.hash_suffix)
    primaries, handoffs = ring.primaries(partition), tuple(ring.handoffs(partition))
    click.echo(f"{ring.name} ring, partition {partition} of {ring.partition_count}, hash {digest}\n")
    for device in primaries:
        click.echo(f"  {_label(device)}")
    for device in handoffs:
        click.echo(f"  {_label(device)}  handoff")
    click.echo("\nask each server (on any host: tracer cluster exec client -- …):")
    for device in (*primaries, *handoffs):
        click.echo(f"  {_curl(topology, ring, device, partition, names)}" + _suffix(device, primaries))
    click.echo("\nfiles:")
    for device in (*primaries, *handoffs):
        root = default_state_dir() / "data" / device.host / device.name
        directory = layout.hash_dir(root, ring.directory, partition, digest)
        click.echo(f"  {directory}  {_list_names(directory)}" + _suffix(device, primaries))


def _label(device: Device) -> str:
    return f"{device.host}/{device.name}  zone {device.zone}"


def _suffix(device: Device, primaries: Sequence[Device]) -> str:
    return "" if device in primaries else "  # handoff"


def _curl(topology: Topology, ring: Ring, device: Device, partition: int, names: tuple[str, ...]) -> str:
    service = topology.service(ring.kind, device.host)
    path = quote(f"/{device.name}/{partition}/" + "/".join(names))
    index = ring.name.partition("-")[2]
    header = f"-H '{POLICY_INDEX}: {index}' " if index else ""
    return f"curl -g -I {header}{shlex.quote(f'http://{service.address}:{service.port}{path}')}"


def _list_names(directory: Path) -> str:
    names = sorted(entry.name for entry in directory.iterdir()) if directory.is_dir() else []
    return " ".join(names) or "(nothing)"


def _print_shares(topology: Topology, made: dict[str, Ring]) -> None:
    shape = next(iter(made.values())).shape
    click.echo(f"{1 << shape.partition_power} partitions, {shape.replicas} replicas; replicas held by each device:")
    click.echo(f"  {'device':<14} {'zone':>4} {'weight':>6} " + " ".join(f"{name:>9}" for name in made))
    for device in next(iter(made.values())).devices:
        counts = " ".join(f"{ring.replica_counts[device]:>9}" for ring in made.values())
        click.echo(f"  {device.host + '/' + device.name:<14} {device.zone:>4} {device.weight:>6g} {counts}")
    strayed = " ".join(f"{ring_builder.balance_percent(ring):>8.1f}%" for ring in made.values())
    click.echo(f"  {'most off its weight':<26} {strayed}")


def _change(change: Callable[[list[Device]], list[Device]]) -> None:
    state_dir = default_state_dir()
    before = cluster.load_rings(state_dir)
    devices = change(list(next(iter(before.values())).devices))
    for ring in before.values():
        _check_enough(devices, ring)
    after = [ring_builder.rebalance(ring, devices) for ring in before.values()]
    for device in devices:
        (state_dir / "data" / device.host / device.name / "tmp").mkdir(parents=True, exist_ok=True)
    rings.save(after, cluster.rings_file(state_dir))
    for ring in after:
        moved = ring_builder.moved_count(before[ring.name], ring)
        click.echo(f"{ring.name} ring: {moved} of {ring.partition_count * ring.shape.replicas} replicas move")


def _check_enough(devices: Sequence[Device], ring: Ring) -> None:
    if sum(device.weight > 0 for device in devices) < ring.shape.replicas:
        raise MissingResourceError(
            f"{ring.shape.replicas} replicas need as many devices with weight", "add a device first"
        )


def _split(device: str) -> tuple[str, str]:
    host, slash, name = device.partition("/")
    if not (host and slash and name) or "/" in name or name.startswith("."):
        raise MissingResourceError(f"{device!r} is no device", "give it as HOST/DEVICE, for example storage1/d1")
    return host, name


def _index(devices: Sequence[Device], host: str, name: str) -> int:
    for index, device in enumerate(devices):
        if (device.host, device.name) == (host, name):
            return index
    known = ", ".join(f"{device.host}/{device.name}" for device in devices)
    raise MissingResourceError(f"the rings have no device {host}/{name}", f"they have: {known}")


def _replace(devices: list[Device], host: str, name: str, weight: float) -> list[Device]:
    index = _index(devices, host, name)
    return [*devices[:index], dataclasses.replace(devices[index], weight=weight), *devices[index + 1 :]]


def _remove(devices: list[Device], host: str, name: str) -> list[Device]:
    index = _index(devices, host, name)
    return devices[:index] + devices[index + 1 :]


def _add(devices: list[Device], new: Device) -> list[Device]:
    if any((device.host, device.name) == (new.host, new.name) for device in devices):
        raise MissingResourceError(f"the rings have {new.host}/{new.name} already", "use: set-weight")
    return [*devices, new]


def _zone(host: str, zone: int | None) -> int:
    """The zone of a new device on a storage host."""
    topology, _ = _current()
    storage = {found.name: found for found in topology.hosts if found.devices}
    if host not in storage:
        raise MissingResourceError(f"{host!r} is no storage host", f"there are: {', '.join(storage)}")
    return storage[host].devices[0].zone if zone is None else zone
