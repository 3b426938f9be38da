"""Captures with holes, of a server that was never silent; and, beside them, one that was, in whole captures."""

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.real_systems import logs
from benchmarks.real_systems.capturing import TCPDUMP, capturing
from benchmarks.real_systems.judge import Verdict, within
from benchmarks.real_systems.lab import Lab, rest_of
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.systems.mirrored import packets_of
from benchmarks.real_systems.truth import Fault, Truth

FROM_S, TO_S = 1.5, 4.5
CLAIMS = (
    "server_silent",
    "unanswered_request",
    "packet_loss",
    "connection_reset",
    "head_of_line",
    "truncated_response",
)
"""Kinds that a hole may be taken for."""


class _Service(Scenario):
    hosts = addresses(client="10.68.0.10", web="10.68.0.20")
    by = (TCPDUMP,)

    def start(self, lab: Lab) -> None:
        settings = {
            "address": lab.address("web"), "port": 8080, "log": str(lab.folder / "web.log"), "work_ms": (5.0, 20.0),
            "calls": [],
        }  # fmt: skip
        lab.start_service("web", settings)

    def traffic(self, lab: Lab) -> Truth:
        server = f"{lab.address('web')}:8080"
        words = (f"http://{server}", "1200", "--at-once", "4", "--keep", "--pause", "0.005")
        asking = lab.begin_python("client", "http_client", *words)
        self.meanwhile(lab)
        calls = logs.client_calls(rest_of(asking), server)
        took = {call.target: call.server_ns for call in logs.service_calls(lab.folder / "web.log", server, {})}
        for call in calls:
            call.server_ns = took[call.target]
        return Truth(calls=calls, names={server: rf".*\b8080|{server}"}, fault=self.fault)

    fault: Fault | None = None

    def meanwhile(self, lab: Lab) -> None:
        """What happens beside the requests."""


class _Holes(_Service):
    """Some packets are taken out of what tcpdump wrote, as it leaves out what it cannot keep up with."""

    def keeps(self, host: str, at_s: float, chance: float) -> bool:
        """Whether a packet is kept. Arguments: seconds since the first; a number drawn from [0, 1)."""
        raise NotImplementedError

    def capturing(self, lab: Lab, folder: Path) -> AbstractContextManager[None]:
        return self._thin(lab, folder)

    @contextmanager
    def _thin(self, lab: Lab, folder: Path) -> Iterator[None]:
        with capturing(lab, self.captured or self.hosts, folder, self.by):
            yield
        drawn = random.Random(1)
        for file in (folder / TCPDUMP).glob("*.pcap"):
            header, packets = packets_of(file)
            first_s = packets[0][0]
            kept = [data for at_s, data in packets if self.keeps(file.stem, at_s - first_s, drawn.random())]
            file.write_bytes(header + b"".join(kept))

    def traffic(self, lab: Lab) -> Truth:
        truth = super().traffic(lab)
        truth.only = ("packets lost", "findings", "words", "products", "failed")
        truth.more["longest_ns"] = max(call.client_ns or 0 for call in truth.calls)
        return truth

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        claimed = [row["kind"] for row in said.findings if row["kind"] in CLAIMS]
        slowest, longest = said.report["requests"]["slowest"][0]["duration_ns"], truth.more["longest_ns"]
        took = {call.target: (call.server_ns or 0, call.client_ns or 0) for call in truth.calls}
        both = [(_took_ns(row), took[row["target"]]) for row in said.exchanges.to_dicts() if row["target"]]
        known = [(one, bounds) for one, bounds in both if one is not None]
        wrong = [one for one, bounds in known if not within(one, bounds)]
        mentions = " ".join(said.text.split()).count("no silence, loss or missing answer is inferred there")
        return [
            Verdict("nothing inferred from holes", "none", ", ".join(claimed) or "none", not claimed),
            Verdict(
                "the slowest request", f"no more than {longest / 1e6:.1f} ms", f"{slowest / 1e6:.1f} ms",
                slowest <= longest + 1_000_000,
            ),
            Verdict("durations that are said", f"{len(known)} right", f"{len(wrong)} wrong", bool(known) and not wrong),
            Verdict("the holes are said", "once", f"{mentions} times", mentions == 1),
        ]  # fmt: skip


def _took_ns(row: dict[str, Any]) -> int | None:
    """How long a request took, at the end that was captured."""
    for begin, end in (
        ("request_first_sent", "response_last_received"),
        ("request_first_received", "response_last_sent"),
    ):
        if row[f"{begin}_trace_ns"] is not None and row[f"{end}_trace_ns"] is not None:
            return row[f"{end}_trace_ns"] - row[f"{begin}_trace_ns"]
    return None


@scenario
class HoleAtBoth(_Holes):
    """1,200 requests over 5 s; both captures lack 3 s of it."""

    name = "capture-hole"
    words = "a Python service; both captures lack the same 3 s"

    def keeps(self, host: str, at_s: float, chance: float) -> bool:
        return not FROM_S <= at_s < TO_S


@scenario
class RandomHoles(_Holes):
    """The same; the service's host alone captured, and a tenth of its packets missing."""

    name = "capture-holes-random"
    words = "the same, captured at the service alone; every tenth packet is missing"
    captured = ("web",)

    def keeps(self, host: str, at_s: float, chance: float) -> bool:
        return chance >= 0.1

    def traffic(self, lab: Lab) -> Truth:
        truth = super().traffic(lab)
        truth.only = ("packets lost", "words", "products", "failed")  # the holes are a warning
        return truth


@scenario
class SilentWithoutHoles(_Service):
    """The same requests, every packet captured; the service's process is stopped for 3 s."""

    name = "silent-no-holes"
    words = "the same; all packets are there, and the service is stopped for 3 s"
    fault = Fault("server_silent on web", ("server_silent",), ("web",))

    def meanwhile(self, lab: Lab) -> None:
        (pid,) = lab.pids("web", "http_service")
        time.sleep(FROM_S)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(TO_S - FROM_S)
        os.kill(pid, signal.SIGCONT)
