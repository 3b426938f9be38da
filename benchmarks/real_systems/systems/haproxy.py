"""HAProxy before three replicas of a Python service; clean, and with a fault at one replica or on its link.

Truth: the client's log, HAProxy's (%Ta, ms), the replicas' (ns); counters of nft for what was dropped.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.real_systems import logs
from benchmarks.real_systems.lab import SWITCH, Lab, rest_of
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Fault, Truth
from benchmarks.real_systems.verdict import Verdict

REPLICAS = ("app1", "app2", "app3")
PORT = 8000
HAPROXY = """global
  nbthread 1
  log stdout format raw local0
defaults
  mode http
  log global
  log-format "%HU\\t%Ta\\t%Tr\\t%ST"
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option redispatch 1
  retries 3
listen front
  bind {address}:80
  http-reuse always
  balance roundrobin
{servers}
"""
FAULT_AFTER_S = 2.0


@scenario
class HAProxy(Scenario):
    """480 requests of 4 clients, 4 s in all."""

    name = "haproxy"
    words = "HAProxy, kept connections to three replicas of a Python service"
    hosts = addresses(client="10.68.0.10", lb="10.68.0.20", app1="10.68.0.31", app2="10.68.0.32", app3="10.68.0.33")
    needs = (
        ("haproxy", "haproxy"),
        ("nft", "nftables"),
    )
    count, at_once, pause_s = 480, 4, 0.02
    tls = False

    def start(self, lab: Lab) -> None:
        tls = certificate(lab) if self.tls else ""
        for host in REPLICAS:
            settings = {
                "address": lab.address(host), "port": PORT, "log": str(lab.folder / f"{host}.log"),
                "work_ms": (5.0, 25.0), "calls": [], "tls": tls,
            }  # fmt: skip
            lab.start_service(host, settings)
        over = " ssl verify none" if self.tls else ""
        servers = "\n".join(f"  server {host} {lab.address(host)}:{PORT}{over}" for host in REPLICAS)
        conf = lab.file("haproxy.cfg", HAPROXY.format(address=lab.address("lb"), servers=servers))
        lab.start("lb", "haproxy", "-db", "-f", str(conf), port=80)

    def inject(self, lab: Lab) -> Iterator[None]:
        """The fault: what comes before `yield` when it begins, what comes after at its end, after the load."""
        yield

    def truth(self, lab: Lab, truth: Truth) -> None:
        """What the fault changes of the truth."""

    def traffic(self, lab: Lab) -> Truth:
        words = ("--at-once", str(self.at_once), "--keep", "--pause", str(self.pause_s))
        load = lab.begin_python("client", "http_client", f"http://{lab.address('lb')}", str(self.count), *words)
        time.sleep(FAULT_AFTER_S)
        with contextmanager(self.inject)(lab):
            said = rest_of(load)
        server = f"{lab.address('lb')}:80"
        calls = logs.client_calls(said, server)
        log = logs.split_by_tabs(lab.folder / "lb-haproxy.out")
        log = [line for line in log if len(line) == 4]
        took = {line[0]: round(float(line[1]) * 1e6) for line in log}
        asked = {line[0]: round(float(line[2]) * 1e6) for line in log}
        logs.with_server_times(calls, took, 1_000_000)
        named = {server: r"haproxy|http|lb:80"}
        for host in REPLICAS:
            address = f"{lab.address(host)}:{PORT}"
            mine = logs.service_calls(lab.folder / f"{host}.log", address, {})
            for call in mine:
                call.id, call.parent = f"{host} {call.id}", f"client {logs.number_of(call.target)}"
                call.client_ns, call.client_resolution_ns = asked.get(call.target), 1_000_000
            calls += mine
            named[address] = rf".*\b{PORT}"
        truth = Truth(calls=calls, names=named)
        self.truth(lab, truth)
        return truth

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        rows = said.exchanges.to_dicts()
        names = sorted({str(row["service"]) for row in rows if row["server"].endswith(f":{PORT}")})
        return [Verdict("replicas are one service", "one name", ", ".join(names), len(names) == 1)]


def certificate(lab: Lab) -> str:
    """A file with a new certificate and its key."""
    file = lab.folder / "tls.pem"
    words = ("-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=judge")
    lab.tool("client", "openssl", "req", *words, "-keyout", str(file), "-out", f"{file}.crt")
    file.write_text(file.read_text("utf-8") + (lab.folder / "tls.pem.crt").read_text("utf-8"), "utf-8")
    return str(file)


@scenario
class Stopped(HAProxy):
    """One replica's process stopped for 2.5 s."""

    name = "haproxy-stopped"
    words = "the same; SIGSTOP of app2 for 2.5 s"

    def inject(self, lab: Lab) -> Iterator[None]:
        pids = lab.pids("app2", "http_service")
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2.5)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        yield

    def truth(self, lab: Lab, truth: Truth) -> None:
        truth.fault = Fault("server_silent on app2", ("server_silent",), ("app2",))


@scenario
class Killed(HAProxy):
    """One replica's process killed; HAProxy tries the next one."""

    name = "haproxy-killed"
    words = "the same; app2 killed"

    def inject(self, lab: Lab) -> Iterator[None]:
        for pid in lab.pids("app2", "http_service"):
            os.kill(pid, signal.SIGKILL)
        yield

    def truth(self, lab: Lab, truth: Truth) -> None:
        truth.fault = Fault("app2 killed", ("connection_refused", "server_died"), ("app2",))
        # What was at work when it died is in no log.
        truth.only = (
            "first finding",
            "packets",
            "words",
            "products",
            "service",
            "requests to 10.68.0.20",
            "requests of",
        )


@scenario
class Delayed(HAProxy):
    """20 ms of delay, each way, on one replica's link."""

    name = "haproxy-delayed"
    words = "the same; 20 ms of delay on app3's link"

    def start(self, lab: Lab) -> None:
        self._link = lab.slow_link("app3")
        super().start(lab)

    def inject(self, lab: Lab) -> Iterator[None]:
        self._link.delay(20)
        yield

    def truth(self, lab: Lab, truth: Truth) -> None:
        truth.fault = Fault("slow_link of app3", ("slow_link",), ("app3", "lb"))


@scenario
class Lossy(HAProxy):
    """The switch drops 8 % of what goes to and from one replica."""

    name = "haproxy-loss"
    words = "the same; the switch drops 8 % of app1's packets"

    def inject(self, lab: Lab) -> Iterator[None]:
        lab.drop(SWITCH, f"ip daddr {lab.address('app1')} numgen random mod 12 == 0", "bridge", "forward")
        yield

    def truth(self, lab: Lab, truth: Truth) -> None:
        truth.lost = lab.dropped_count(SWITCH, "bridge")
        truth.fault = Fault("packet_loss at app1", ("packet_loss",), ("app1", "lb"))


@scenario
class DroppedInHost(HAProxy):
    """One replica's own firewall drops 8 % of what has arrived, after the capture saw it."""

    name = "haproxy-firewall"
    words = "the same; nft in app1 drops 8 % at input"

    def inject(self, lab: Lab) -> Iterator[None]:
        lab.drop("app1", f"ip saddr {lab.address('lb')} numgen random mod 12 == 0")
        yield

    def truth(self, lab: Lab, truth: Truth) -> None:
        truth.more["dropped"] = lab.dropped_count("app1")
        truth.fault = Fault("dropped_in_host on app1", ("dropped_in_host",), ("app1",))
