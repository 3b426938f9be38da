"""Captures that hold each packet more than once: a switch's mirror port of two hosts' ports; and, beside it, a
mirror port that shows them once.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.real_systems import logs
from benchmarks.real_systems.capturing import TCPDUMP, running, tcpdump
from benchmarks.real_systems.judge import Verdict
from benchmarks.real_systems.lab import SWITCH, Host, Lab, port_name
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Truth

PROBE = "probe"
FILE_HEADER_LEN, RECORD_HEADER = 24, struct.Struct("<IIII")


def packets_of(file: Path) -> tuple[bytes, list[tuple[float, bytes]]]:
    """The header of a pcap file of microseconds; of each packet its stamp (s) and its record."""
    body, at, packets = file.read_bytes(), FILE_HEADER_LEN, []
    while at < len(body):
        seconds, fraction, kept, _ = RECORD_HEADER.unpack_from(body, at)
        end = at + RECORD_HEADER.size + kept
        packets.append((seconds + fraction / 1e6, body[at:end]))
        at = end
    return body[:FILE_HEADER_LEN], packets


def merge(files: Sequence[Path], into: Path) -> None:
    """One capture of several, as a mirror port of all their interfaces makes it: all packets by time."""
    headers, packets = zip(*map(packets_of, files), strict=True)
    by_time = sorted((packet for each in packets for packet in each), key=lambda packet: packet[0])
    into.write_bytes(headers[0] + b"".join(record for _, record in by_time))


def _to(switch: Host, folder: Path, host: str) -> tuple[str, ...]:
    argv = tcpdump(switch, folder, port_name(host)).argv
    return (*argv[:-1], str(folder / f"{host}.pcap"))


class _Mirror(Scenario):
    hosts = addresses(client="10.68.0.10", web="10.68.0.20")
    by = (TCPDUMP,)
    mirrored: tuple[str, ...]
    """Of which hosts' ports."""

    def start(self, lab: Lab) -> None:
        for host in ("client", "web"):
            for place, interface in ((host, "eth0"), (SWITCH, port_name(host))):
                lab.cut_to_mss(place, interface)
        settings = {
            "address": lab.address("web"), "port": 8080, "log": str(lab.folder / "web.log"), "work_ms": (5.0, 20.0),
            "calls": [],
        }  # fmt: skip
        lab.start_service("web", settings)

    @contextmanager
    def _mirroring(self, lab: Lab, folder: Path) -> Iterator[None]:
        switch, apart = lab.hosts[SWITCH], folder / "ports"
        ports = [replace(tcpdump(switch, apart), argv=_to(switch, apart, host)) for host in self.mirrored]
        with running(tcpdump(lab.hosts["client"], folder / TCPDUMP), *ports):
            yield
        merge(sorted(apart.glob("*.pcap")), folder / TCPDUMP / f"{PROBE}.pcap")

    def capturing(self, lab: Lab, folder: Path) -> AbstractContextManager[None]:
        return self._mirroring(lab, folder)

    def traffic(self, lab: Lab) -> Truth:
        server = f"{lab.address('web')}:8080"
        words = ("--at-once", "4", "--pause", "0.01")
        calls = logs.client_calls(lab.python("client", "http_client", f"http://{server}", "200", *words), server)
        took = {call.target: call.server_ns for call in logs.service_calls(lab.folder / "web.log", server, {})}
        for call in calls:
            call.server_ns = took[call.target]
        return Truth(calls=calls, names={server: rf".*\b8080|{server}"})

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        states = said.table("hops")["state"].to_list()
        share = sum(state == "matched" for state in states) / max(1, len(states))
        return [
            Verdict("transfers paired", "at least 99 %", f"{share:.1%}", share >= 0.99),
            self._said_once(said),
        ]

    def _said_once(self, said: Said) -> Verdict:
        words, twice = " ".join(said.text.split()), len(self.mirrored) > 1
        count = words.count("copied packets")
        right = count == twice and ("probe.pcap holds nearly every packet twice" in words) == twice
        return Verdict("copies said once", "yes" if twice else "no copies", f"{count} times", right)


@scenario
class MirrorBothPorts(_Mirror):
    """200 requests; the service seen by a mirror of both hosts' ports, which copies each packet twice."""

    name = "mirror-both-ports"
    words = "a Python service; client captured, and a switch's mirror port that shows each packet twice"
    mirrored = ("client", "web")


@scenario
class MirrorOnePort(_Mirror):
    """The same; the mirror of the service's port alone shows each packet once."""

    name = "mirror-one-port"
    words = "the same, but the mirror port is of the service's port alone: each packet once"
    mirrored = ("web",)
