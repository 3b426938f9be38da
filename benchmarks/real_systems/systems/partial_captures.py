"""Captures that do not hold everything, or hold it otherwise: an agent that restarted, NAT seen mid-connection, a
bridge from its host's side, one end alone.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from benchmarks.real_systems import logs
from benchmarks.real_systems.capturing import AGENT, TCPDUMP, agent, capturing, running, tcpdump
from benchmarks.real_systems.lab import SWITCH, Lab, port_name, rest_of
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.systems.haproxy import HAProxy
from benchmarks.real_systems.systems.python_services import HOSTS, service_truth, start_services
from benchmarks.real_systems.truth import Truth
from benchmarks.real_systems.verdict import Verdict


@scenario
class AgentRestarted(HAProxy):
    """The agent of one replica is away for 4 s; nothing else happens."""

    name = "agent-restarted"
    words = "HAProxy and three replicas; app1's agent restarted, 4 s without it"
    by = (AGENT,)
    count, pause_s = 900, 0.02

    def capturing(self, lab: Lab, folder: Path) -> AbstractContextManager[None]:
        return self._two_parts(lab, folder)

    @contextmanager
    def _two_parts(self, lab: Lab, folder: Path) -> Iterator[None]:
        with capturing(lab, [host for host in self.hosts if host != "app1"], folder, self.by), ExitStack() as first:
            first.enter_context(running(agent(lab.hosts["app1"], folder / AGENT)))
            self._stop, self._again, self._folder = first.close, ExitStack(), folder / AGENT
            with self._again:
                yield

    def inject(self, lab: Lab) -> Iterator[None]:
        self._stop()
        time.sleep(4)
        self._again.enter_context(running(agent(lab.hosts["app1"], self._folder)))
        yield

    def truth(self, lab: Lab, truth: Truth) -> None:
        truth.only = ("requests", "packets", "findings", "words", "products", "service", "durations at the client")


class _Nat(Scenario):
    hosts = addresses(client="10.68.1.10", router="10.68.1.1 10.68.0.1", web="10.68.0.20")
    needs = (("nft", "nftables"),)

    def start(self, lab: Lab) -> None:
        web = lab.address("web")
        lab.tool("router", "sysctl", "-qw", "net.ipv4.ip_forward=1")
        lab.tool("client", "ip", "route", "add", "default", "via", "10.68.1.1")
        to, back = f"tcp dport 8081 dnat to {web}:8080", "oifname eth1 masquerade"
        chains = f"chain p {{\n type nat hook prerouting priority -100; iifname eth0 {to};\n}}\n"
        chains += f"chain s {{\n type nat hook postrouting priority 100; {back};\n}}\n"
        lab.nft("router", f"table ip nat {{\n{chains}}}\n")
        settings = {
            "address": web,
            "port": 8080,
            "log": str(lab.folder / "web.log"),
            "work_ms": (5.0, 20.0),
            "calls": [],
        }
        lab.start_service("web", settings)

    def ask(self, lab: Lab, count: int, *words: str) -> "list[str]":
        return ["client", "http_client", "http://10.68.1.1:8081", str(count), "--keep", "--pause", "0.01", *words]

    def read(self, lab: Lab, said: str, least: int = 0) -> Truth:
        """The logs, from one request's number on."""
        server = f"{lab.address('web')}:8080"
        calls = [call for call in logs.client_calls(said, server) if logs.number_of(call.target) >= least]
        took = {call.target: call.server_ns for call in logs.service_calls(lab.folder / "web.log", server, {})}
        for call in calls:
            call.client_port, call.server_ns = 0, took[call.target]  # the server knows it by another port
        return Truth(calls=calls, names={server: r".*\b808[01]"})


@scenario
class NatRouter(_Nat):
    """100 requests of 4 clients; the router captured as a third host."""

    name = "nat-router"
    words = "a Python service behind a router with DNAT and masquerade, all three captured"

    def traffic(self, lab: Lab) -> Truth:
        host, module, *words = self.ask(lab, 100, "--at-once", "4")
        return self.read(lab, lab.python(host, module, *words))


@scenario
class NatMidConnection(_Nat):
    """Two kept connections that began long before the captures did, at both ends alone."""

    name = "nat-mid-connection"
    words = "the same, client and service captured, begun in the middle of the connections"
    captured = ("client", "web")

    def traffic(self, lab: Lab) -> Truth:
        said = rest_of(self._load)
        # Which request was first after the captures began is not known to the number: the count is not judged.
        truth = self.read(lab, said)
        truth.only = ("packets", "findings", "words", "products", "service")
        return truth

    def capturing(self, lab: Lab, folder: Path) -> AbstractContextManager[None]:
        host, module, *words = self.ask(lab, 1600, "--at-once", "2")
        self._load = lab.begin_python(host, module, *words)
        time.sleep(1.5)
        return super().capturing(lab, folder)


@scenario
class BridgeFromHostSide(Scenario):
    """All veths of a bridge, as on a container node; 100 requests."""

    name = "bridge-host-side"
    words = "three Python services in namespaces; captured on the host side of the bridge"
    hosts = HOSTS

    def start(self, lab: Lab) -> None:
        start_services(lab)

    def traffic(self, lab: Lab) -> Truth:
        server = f"{lab.address('shop')}:8080"
        said = lab.python("client", "http_client", f"http://{server}", "100", "--at-once", "2", "--keep")
        return service_truth(lab, logs.client_calls(said, server))

    def capturing(self, lab: Lab, folder: Path) -> AbstractContextManager[None]:
        return self._on_switch(lab, folder)

    @contextmanager
    def _on_switch(self, lab: Lab, folder: Path) -> Iterator[None]:
        switch = lab.hosts[SWITCH]
        ports = [word for host in self.hosts for word in ("-i", port_name(host))]
        with running(tcpdump(switch, folder / TCPDUMP, "any"), agent(switch, folder / AGENT, *ports)):
            yield

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        states = said.table("hops")["state"].to_list()
        share = sum(state == "matched" for state in states) / max(1, len(states))
        return [Verdict("transfers paired", "at least 99 %", f"{share:.1%}", share >= 0.99)]


@scenario
class OneSided(Scenario):
    """The client alone captured; three services behind."""

    name = "one-sided"
    words = "three Python services; captured at the client alone"
    hosts = HOSTS
    captured = ("client",)

    def start(self, lab: Lab) -> None:
        start_services(lab)
        lab.slow_link("shop").delay(8)

    def traffic(self, lab: Lab) -> Truth:
        server = f"{lab.address('shop')}:8080"
        said = lab.python("client", "http_client", f"http://{server}", "40", "--pause", "0.02")
        truth = service_truth(lab, logs.client_calls(said, server))
        truth.calls = [call for call in truth.calls if call.server == server]
        truth.names = {server: truth.names[server]}
        for call in truth.calls:
            truth.more["served_ns"] = truth.more.get("served_ns", 0) + (call.server_ns or 0)
            call.server_ns = None
        truth.more["served_ns"] /= len(truth.calls)
        return truth

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        """The server's own time lies between what is said to be its alone and that with what may be the network's."""
        spans = said.table("spans").to_dicts()
        alone = sum(row["work_ns"] + row["queue_ns"] for row in spans) / max(1, len(truth.calls))
        shared = sum(row["server_or_network_ns"] for row in spans) / max(1, len(truth.calls))
        true, slack = truth.more["served_ns"], max(1e6, 0.05 * truth.more["served_ns"])
        words = f"{alone / 1e6:.1f} ms, and {shared / 1e6:.1f} ms of server or network"
        right = alone - slack <= true <= alone + shared + slack
        return [Verdict("time in the server (16 ms are the network's)", f"{true / 1e6:.1f} ms a request", words, right)]


@scenario
class ServerAlone(Scenario):
    """One service alone captured, which one other host asks: both addresses are at one end of every packet."""

    name = "server-alone"
    words = "three Python services; captured at one of them alone, in one file"
    hosts = HOSTS
    captured = ("users",)
    by = (TCPDUMP,)

    def start(self, lab: Lab) -> None:
        start_services(lab)
        lab.slow_link("users").delay(1)

    def traffic(self, lab: Lab) -> Truth:
        server, users = f"{lab.address('shop')}:8080", f"{lab.address('users')}:5000"
        said = lab.python("client", "http_client", f"http://{server}", "40", "--pause", "0.02")
        truth = service_truth(lab, logs.client_calls(said, server))
        truth.calls = [call for call in truth.calls if call.server == users]
        for call in truth.calls:
            call.parent = call.client_ns = None
        truth.names = {users: truth.names[users]}
        return truth

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        rows = said.exchanges.to_dicts()
        ends = sorted({(str(row["client_host"]), str(row["server_host"])) for row in rows})
        words = "the client's end was not captured"
        return [
            Verdict("whose capture it is", "the server's", str(ends), ends == [("None", "users")]),
            Verdict("what one end does not show", words, said.text[:300], words in " ".join(said.text.split()).lower()),
        ]
