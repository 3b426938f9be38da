"""A section inserted into a host's link, in which each frame has the size that a wire would carry.

    host eth0 ─── <port> ═ m ═ a ─────── b ═ n ═ c ─────── d ═ br0          ═ bridge, ─ virtual cable, n may be a relay
                              (cut to MSS here)    (and here)

The host's own port hands over super-segments of up to 64 KiB. Losing, delaying or overtaking one of those would lose 45
packets at once; so the section begins and ends with a cable whose ends have segmentation offload off, and what is done
to packets is done inside. It is only there while a fault needs it: between b and c frames go through a bridge
(loss, in the kernel) or through a relay process (delay, reordering). Frames under way when it is put in or taken out
are lost, a few at most.
"""

import contextlib
import dataclasses
import functools
import json
import subprocess
import sys
from collections.abc import Callable, Sequence

from storage_cluster.faults.kinds import FaultError
from storage_cluster.faults.relay import Rule
from storage_cluster.hosts import namespaces, network
from storage_cluster.hosts.offload import set_offload


@dataclasses.dataclass(frozen=True)
class Names:
    """Interfaces of one section, named after the host's place in the topology: names are short."""

    port: str
    index: int

    def end(self, letter: str) -> str:
        """One of a, b, c, d, m, n."""
        return f"sp{self.index}{letter}"

    @property
    def from_host(self) -> str:
        """The interface at which the host's packets arrive, already segmented."""
        return self.end("d")

    @property
    def to_host(self) -> str:
        """The interface at which packets for the host arrive, already segmented."""
        return self.end("a")


class Splice:
    """The section in one host's link; it exists until `remove` is called."""

    def __init__(self, names: Names, switch_pid: int) -> None:
        self.names = names
        self._switch_pid = switch_pid
        self._relay: subprocess.Popen[bytes] | None = None
        self._rules: tuple[Rule, ...] = ()
        self._configure(_insert)

    def relay(self, rules: Sequence[Rule]) -> None:
        """Insert a relay that treats frames by these rules; without rules, remove it."""
        if tuple(rules) == self._rules:
            return
        self._rules = tuple(rules)
        if not rules:
            self._end_relay()
            return
        if self._relay is None:
            self._relay = _start_relay(self.names, self._switch_pid)
            self._configure(_open_middle)
        self._order([dataclasses.asdict(rule) for rule in rules])

    def remove(self) -> None:
        """Remove the section and join the link again."""
        self._end_relay()
        self._configure(_take_out)

    def _end_relay(self) -> None:
        if self._relay is not None:
            self._configure(_close_middle)
            assert self._relay.stdin is not None
            with contextlib.suppress(FaultError, BrokenPipeError):  # it ended by itself
                self._order(None)
                self._relay.stdin.close()
            self._relay = None

    def _order(self, order: object) -> None:
        assert self._relay is not None and self._relay.stdin is not None
        try:
            self._relay.stdin.write(json.dumps(order).encode() + b"\n")
            self._relay.stdin.flush()
        except BrokenPipeError:
            raise FaultError(f"the relay of {self.names.port} ended", "clear the fault and add it again") from None

    def _configure(self, change: Callable[[Names], None]) -> None:
        try:
            namespaces.run_inside(self._switch_pid, functools.partial(change, self.names))
        except RuntimeError as error:
            raise FaultError(
                f"the kernel refused a change of the network ({error})", "see the cluster's keeper.log"
            ) from None


def _insert(names: Names) -> None:
    from pyroute2 import IPRoute  # noqa: PLC0415  only in a child: it starts an event loop of its own

    with IPRoute() as netlink:
        for one, other in (("a", "b"), ("c", "d")):
            netlink.link("add", ifname=names.end(one), kind="veth", peer=names.end(other))
        for letter in "mn":
            netlink.link("add", ifname=names.end(letter), kind="bridge")
        for letter in "abcd":
            set_offload(names.end(letter), tso=False, gso=False, gro=False)
        find = lambda name: netlink.link_lookup(ifname=name)[0]  # noqa: E731
        for name, master in (("a", "m"), ("b", "n"), ("c", "n")):
            netlink.link("set", index=find(names.end(name)), master=find(names.end(master)))
        for letter in "abcdmn":
            netlink.link("set", index=find(names.end(letter)), state="up")
        netlink.link("set", index=find(names.port), master=find(names.end("m")))
        netlink.link("set", index=find(names.end("d")), master=find(network.BRIDGE))


def _take_out(names: Names) -> None:
    from pyroute2 import IPRoute  # noqa: PLC0415

    with IPRoute() as netlink:
        find = lambda name: netlink.link_lookup(ifname=name)[0]  # noqa: E731
        netlink.link("set", index=find(names.end("d")), master=0)
        netlink.link("set", index=find(names.port), master=find(network.BRIDGE))
        for letter in "acmn":
            netlink.link("del", index=find(names.end(letter)))


def _open_middle(names: Names) -> None:
    from pyroute2 import IPRoute  # noqa: PLC0415

    with IPRoute() as netlink:
        for letter in "bc":
            netlink.link("set", index=netlink.link_lookup(ifname=names.end(letter))[0], master=0)


def _close_middle(names: Names) -> None:
    from pyroute2 import IPRoute  # noqa: PLC0415

    with IPRoute() as netlink:
        middle = netlink.link_lookup(ifname=names.end("n"))[0]
        for letter in "bc":
            netlink.link("set", index=netlink.link_lookup(ifname=names.end(letter))[0], master=middle)


def _start_relay(names: Names, switch_pid: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", "storage_cluster.faults.relay", names.end("b"), names.end("c")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=functools.partial(namespaces.enter, switch_pid, "net"),  # noqa: PLW1509  no threads here
    )
    assert process.stdout is not None
    with process.stdout as said:
        if said.readline() != b"ready\n":
            raise FaultError("the relay did not start", "see the cluster's keeper.log")
    return process
