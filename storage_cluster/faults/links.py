"""Faults of a host's link: cut, loss, delay, reordering, bandwidth. All on the switch's side of the cable, so that the
host sees what a host sees: its packets leave, and do not arrive.
"""

import functools
from collections.abc import Mapping, Sequence

from storage_cluster.faults import firewall
from storage_cluster.faults.kinds import Fault, FaultError
from storage_cluster.faults.relay import Rule
from storage_cluster.faults.splice import Names, Splice
from storage_cluster.hosts import namespaces, network
from storage_cluster.topology import Topology

_SPLICED = ("drop", "delay", "reorder")
_RELAYED = ("delay", "reorder")
_MILLION = 1_000_000


class LinkFaults:
    """The faults of the hosts' links."""

    def __init__(self, topology: Topology, switch_pid: int, host_pids: Mapping[str, int]) -> None:
        self._topology = topology
        self._switch_pid = switch_pid
        self._host_pids = host_pids
        self._splices: dict[str, Splice] = {}
        self._rules: list[str] = []
        self._rates: dict[str, int] = {}

    def apply(self, active: Sequence[Fault]) -> None:
        """Adjust all links to the faults in force. Raises: FaultError."""
        spliced = {fault.host for fault in active if fault.kind in _SPLICED}
        for host in sorted(spliced - self._splices.keys()):
            self._splices[host] = Splice(self._names(host), self._switch_pid)
        for host, splice in self._splices.items():
            splice.relay([self._relay_rule(f) for f in active if f.host == host and f.kind in _RELAYED])
        self._filter([rule for fault in active for rule in self._filter_rules(fault)])
        for host in sorted(self._splices.keys() - spliced):
            self._splices.pop(host).remove()
        self._shape({f.host: f.parameters.rate_bits_per_s for f in active if f.kind == "bandwidth"})

    def once(self, fault: Fault) -> str:
        """Do nothing: none of these faults is momentary."""
        return ""

    def end(self) -> None:
        """Do nothing: the network ends with the cluster."""

    def _names(self, host: str) -> Names:
        index = [known.name for known in self._topology.hosts].index(host)
        return Names(network.port_name(host), index)

    def _address(self, host: str | None) -> str:
        return self._topology.host(host).address if host else ""

    def _relay_rule(self, fault: Fault) -> Rule:
        given = fault.parameters
        return Rule(
            peer=self._address(given.peer),
            to_host=given.direction in ("to", "both"),
            from_host=given.direction in ("from", "both"),
            probability=1.0 if given.probability is None else given.probability,
            delay_ns=given.delay_ns or 0,
            jitter_ns=given.jitter_ns or 0,
            overtaken=fault.kind == "reorder",
            seed=given.seed,
        )

    def _filter_rules(self, fault: Fault) -> list[str]:
        if fault.kind not in ("cut", "drop"):
            return []
        names, given = self._names(fault.host), fault.parameters
        if fault.kind == "cut":
            ends = {"from": f'iifname "{names.port}"', "to": f'oifname "{names.port}"'}
            verdict = "drop"
        else:
            ends = {"from": f'iifname "{names.from_host}"', "to": f'iifname "{names.to_host}"'}
            assert given.probability is not None
            share = round(given.probability * _MILLION)
            verdict = f"numgen random mod {_MILLION} < {share} drop" if share < _MILLION else "drop"
        peer = self._address(given.peer)
        peers = {"from": f"ip daddr {peer}", "to": f"ip saddr {peer}"} if peer else {"from": "", "to": ""}
        wanted = ("from", "to") if given.direction in (None, "both") else (given.direction,)
        return [f"{ends[way]} {peers[way]} {verdict}" for way in wanted]

    def _filter(self, rules: list[str]) -> None:
        if rules != self._rules:
            firewall.replace(self._switch_pid, "bridge", [firewall.chain("forward", rules)] if rules else [])
            self._rules = rules

    def _shape(self, rates: Mapping[str, int | None]) -> None:
        for host in sorted(rates.keys() | self._rates.keys()):
            rate = rates.get(host)
            if rate == self._rates.get(host):
                continue
            link = self._topology.link
            on_port = functools.partial(network.shape_port, host, link, rate or link.rate_bits_per_s)
            on_host = functools.partial(network.shape_host, link, rate)
            self._inside(self._switch_pid, on_port)
            self._inside(self._host_pids[host], on_host)
            if rate is None:
                del self._rates[host]
            else:
                self._rates[host] = rate

    def _inside(self, pid: int, change: functools.partial[None]) -> None:
        try:
            namespaces.run_inside(pid, change)
        except RuntimeError as error:
            raise FaultError(f"the kernel refused a rate ({error})", "choose another --rate") from None
