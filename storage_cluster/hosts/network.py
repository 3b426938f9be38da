"""The network between hosts: one switch, a cable to each host, all behaving like real network cards.

    client ─eth0══╗                       eth0     on the host: TSO, GSO and GRO on, so a captured packet may be a
    proxy  ─eth0══╣ br0 (bridge, in the            super-segment of up to 64 KiB
    storage─eth0══╝ switch's namespace)   <host>   on the switch: TSO, GSO and GRO off, so the kernel splits there as a
                                                   card does, and shaped (tbf), so that the receiver merges other runs
                                                   than the sender made

Without the second half both ends of a cable would show the same packets, and every tool would look perfect.

A burst (`burst_bytes`) below a super-segment has the shaper split it into packets that it passes on one by one: the
receiver merges most differently, for 6.7 ms of a core for each MB and cable. With a larger one (0.8 ms) a super-segment
is split behind the shaper, and merged again nearly as it was. With `card_queue_ms` a host's own card is shaped as well:
then it is the host that waits if it has more to send than the link carries, as with a real card, and the switch loses
nothing but where several hosts send to one.

IPv6 is off, so that captures hold only what the store says. Everything lives in namespaces of the cluster's own: no
address, route or interface of the machine outside is touched.
"""

import contextlib
import functools
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from storage_cluster.hosts import namespaces
from storage_cluster.hosts.offload import set_offload
from storage_cluster.topology import Link, Topology

if TYPE_CHECKING:
    from pyroute2 import IPRoute

BRIDGE = "br0"
HOST_INTERFACE = "eth0"
_PORT_NAME_MAX_LEN = 15
_ROOT, _ROOT_HANDLE = 0xFFFFFFFF, 0x10000


def connect(topology: Topology, switch_pid: int, host_pids: Mapping[str, int]) -> None:
    """Connect every host to the switch. Each pid is of a process in that host's namespaces. Raises: RuntimeError."""
    namespaces.run_inside(switch_pid, functools.partial(_make_switch, topology.link, host_pids))
    for host in topology.hosts:
        configure = functools.partial(_configure_host, host.address, topology.link)
        namespaces.run_inside(host_pids[host.name], configure)


def port_name(host: str) -> str:
    """The switch's interface for a host."""
    return host[:_PORT_NAME_MAX_LEN]


def shape_port(host: str, link: Link, rate_bits_per_s: int) -> None:
    """Set, inside the switch, how fast the link carries data to a host."""
    from pyroute2 import IPRoute  # noqa: PLC0415

    with IPRoute() as netlink:
        _shape(netlink, "change", netlink.link_lookup(ifname=port_name(host))[0], link, rate_bits_per_s)


def shape_host(link: Link, rate_bits_per_s: int | None) -> None:
    """Set, inside a host, how fast its card sends; None for what the link has: its rate, or as fast as it accepts."""
    from pyroute2 import IPRoute  # noqa: PLC0415

    with IPRoute() as netlink:
        index = netlink.link_lookup(ifname=HOST_INTERFACE)[0]
        if rate_bits_per_s is not None:
            _shape(netlink, "replace", index, link, rate_bits_per_s)
        elif link.card_queue_ms:
            _shape(netlink, "replace", index, link, link.rate_bits_per_s, link.card_queue_ms)
        else:
            netlink.tc("del", index=index, parent=_ROOT)


def _shape(
    netlink: "IPRoute", command: str, index: int, link: Link, rate_bits_per_s: int, queue_ms: int | None = None
) -> None:
    """Send at a rate. `queue_ms`: how much waits for it at most (default: as at the switch)."""
    latency_ms = link.queue_latency_ms if queue_ms is None else queue_ms
    netlink.tc(
        command, "tbf", index, _ROOT_HANDLE, parent=_ROOT,
        rate=rate_bits_per_s // 8, burst=link.burst_bytes, latency=f"{latency_ms}ms",
    )  # fmt: skip


def _make_switch(link: Link, host_pids: Mapping[str, int]) -> None:
    from pyroute2 import IPRoute  # noqa: PLC0415  only in a child: it starts an event loop of its own

    _quiet_ipv6()
    with IPRoute() as netlink:
        netlink.link("add", ifname=BRIDGE, kind="bridge")
        bridge = netlink.link_lookup(ifname=BRIDGE)[0]
        for host, pid in host_pids.items():
            port = port_name(host)
            netlink.link("add", ifname=port, kind="veth", peer={"ifname": HOST_INTERFACE, "net_ns_pid": pid})
            index = netlink.link_lookup(ifname=port)[0]
            netlink.link("set", index=index, master=bridge)
            set_offload(port, tso=False, gso=False, gro=False)
            _shape(netlink, "add", index, link, link.rate_bits_per_s)
            netlink.link("set", index=index, state="up")
        netlink.link("set", index=bridge, state="up")


def _configure_host(address: str, link: Link) -> None:
    from pyroute2 import IPRoute  # noqa: PLC0415

    _quiet_ipv6()
    if link.somaxconn:
        _limit_listen_queues(link.somaxconn)
    with IPRoute() as netlink:
        index = netlink.link_lookup(ifname=HOST_INTERFACE)[0]
        netlink.addr("add", index=index, address=address, prefixlen=link.subnet_prefix_len, family=socket.AF_INET)
        set_offload(HOST_INTERFACE, tso=True, gso=True, gro=True)
        if link.card_queue_ms:
            _shape(netlink, "add", index, link, link.rate_bits_per_s, link.card_queue_ms)
        netlink.link("set", index=netlink.link_lookup(ifname="lo")[0], state="up")
        netlink.link("set", index=index, state="up")


def _limit_listen_queues(length: int) -> None:
    """Set how many connections a listening socket of this host holds at most. Raises: RuntimeError."""
    try:
        Path("/proc/sys/net/core/somaxconn").write_text(str(length), "ascii")
    except OSError as error:
        raise RuntimeError(f"listen queues of {length}: {error.strerror}") from None


def _quiet_ipv6() -> None:
    for name in ("all", "default"):
        with contextlib.suppress(OSError):  # no IPv6 in this kernel, or a read-only /proc/sys
            Path("/proc/sys/net/ipv6/conf", name, "disable_ipv6").write_text("1", "ascii")
