"""A Ceph for a test or a measurement: its configuration, its keys, and its daemons, brought up in their order.

One monitor, OSDs, and a gateway if its address is given. Where commands and daemons run (on loopback, in network
namespaces) the caller decides, who gives `run` and `start`; the environment variable CEPH_CONF must name
`Cluster.conf` for both.

OSDs keep all in memory. There is no manager: pools have fixed numbers of placement groups, and nobody needs statistics.
"""

import dataclasses
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

MON = "mon"
GATEWAY = "gateway"
_CONF = """
[global]
fsid = {fsid}
mon host = [v2:{mon}:{mon_port}/0]
mon initial members = a
osd pool default size = {size}
osd pool default min size = 1
osd pool default pg num = {pg_num}
osd pool default pgp num = {pg_num}
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 4294967296
mon allow pool size one = true
mon data avail crit = 1
mon max pg per osd = 1000
ms bind msgr1 = false
run dir = {folder}
admin socket =
log file = {folder}/$name.log
pid file =
mon data = {folder}/mon
osd data = {folder}/osd-$id
keyring = {folder}/keyring
rgw data = {folder}/rgw
{gateway}
{more}
[mon.a]
public addr = {mon}
{osds}
"""
_FRONTEND = "rgw dns name = localhost\nrgw thread pool size = {threads}\nrgw frontends = beast endpoint={endpoint}"

Run = Callable[..., object]
"""Run a command to its end: the daemon at whose place, and its words."""
Start = Callable[..., object]
"""Likewise a daemon, which goes on; returns when it listens, if that matters."""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """What a cluster consists of."""

    folder: Path
    mon: str
    """Addresses."""
    osds: Sequence[str]
    mon_port: int = 3300
    gateway: str = ""
    """Address and port of the gateway; empty if there is none."""
    gateway_threads: int = 512
    size: int = 1
    """Replicas of an object."""
    pg_num: int = 8
    more: str = ""
    """Further lines of the section `global`."""

    @property
    def conf(self) -> Path:
        """The file that CEPH_CONF must name."""
        return self.folder / "ceph.conf"


def write_conf(cluster: Cluster) -> str:
    """Write the configuration and make the daemons' folders. Returns the cluster's id."""
    fsid = str(uuid.uuid4())
    frontend = _FRONTEND.format(endpoint=cluster.gateway, threads=cluster.gateway_threads) if cluster.gateway else ""
    osds = "\n".join(f"[osd.{number}]\npublic addr = {address}" for number, address in enumerate(cluster.osds))
    names = {name: getattr(cluster, name) for name in ("folder", "mon", "mon_port", "size", "pg_num", "more")}
    cluster.conf.write_text(_CONF.format(fsid=fsid, gateway=frontend, osds=osds, **names))
    for name in ("mon", "rgw", *(f"osd-{number}" for number in range(len(cluster.osds)))):
        (cluster.folder / name).mkdir(exist_ok=True)
    return fsid


def start_daemons(
    cluster: Cluster, run: Run, start: Start, *, users: Mapping[str, tuple[str, str]] | None = None
) -> None:
    """Bring the cluster up: keys, the monitor, OSDs (`osd.0`, …), and the gateway with these users of S3.

    Arguments: users: name to access key and secret key.
    """
    fsid = write_conf(cluster)
    _make_keys(cluster, run)
    monitors = str(cluster.folder / "monmap")
    address = f"[v2:{cluster.mon}:{cluster.mon_port}]"
    run(MON, "monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, monitors)
    run(MON, "ceph-mon", "--mkfs", "-i", "a", "--monmap", monitors, "--keyring", str(cluster.folder / "keyring"))
    start(MON, "ceph-mon", "-i", "a", "-f")
    for number in range(len(cluster.osds)):
        osd, daemon = str(uuid.uuid4()), f"osd.{number}"
        run(MON, "ceph", "osd", "new", osd)
        run(daemon, "ceph-osd", "-i", str(number), "--mkfs", "--osd-uuid", osd)
        start(daemon, "ceph-osd", "-i", str(number), "-f")
    for name, (access_key, secret_key) in (users or {}).items():
        keys = ("--access-key", access_key, "--secret", secret_key)
        run(MON, "radosgw-admin", "user", "create", "--uid", name, "--display-name", name, *keys)
    if cluster.gateway:
        start(GATEWAY, "radosgw", "-f", "-n", "client.admin")


def _make_keys(cluster: Cluster, run: Run) -> None:
    """Who has a key of Ceph's own, and for which daemons; RGW cannot do without."""
    entities = {"mon.": (MON,), "client.admin": (MON, "osd", "mgr")}
    entities |= {f"osd.{number}": (MON, "osd") for number in range(len(cluster.osds))}
    keyring = str(cluster.folder / "keyring")
    run(MON, "ceph-authtool", "--create-keyring", keyring)
    for entity, capabilities in entities.items():
        words = [word for daemon in capabilities for word in ("--cap", daemon, "allow *")]
        run(MON, "ceph-authtool", keyring, "--gen-key", "-n", entity, *words)
