"""gunicorn and curl with bodies that are not one quick burst: an answer made in pieces, a body produced or read slowly.

Truth: the application's own log of when it began and ended and how long it slept in between; curl's times and
trace.
"""

import re
import sys
from pathlib import Path
from typing import Any

from benchmarks.real_systems import logs
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Call, Fault, Truth
from benchmarks.real_systems.verdict import Verdict
from benchmarks.real_systems.web_servers import GUNICORN_NEEDS, start_gunicorn

PORT = 8000
DAY_US = 86_400_000_000
APP = """
import json, os, time

LOG = os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
NAPS = {naps}  # before the answer, between its pieces, between pieces of the body that are read, before its end
PIECES, PIECE = {pieces}, b"x" * {piece}

def application(environ, start_response):
    began, slept = time.time_ns(), [0, 0, 0, 0]
    def nap(which):
        if NAPS[which]:
            at = time.time_ns()
            time.sleep(NAPS[which])
            slept[which] += time.time_ns() - at
    while environ["wsgi.input"].read({read}):
        nap(2)
    nap(0)
    length = [] if NAPS[1] else [("Content-Length", str(PIECES * len(PIECE)))]
    start_response("200 OK", [("Content-Type", "application/octet-stream"), *length])
    for number in range(PIECES):
        if number:
            nap(1)
        yield PIECE
    nap(3)
    target = environ["PATH_INFO"] + "?" + environ["QUERY_STRING"]
    line = dict(target=target, began_ns=began, ended_ns=time.time_ns(), slept_ns=slept)
    os.write(LOG, (json.dumps(line) + chr(10)).encode())
"""
PRODUCER = """
import os, time
for number in range({pieces}):
    if number:
        time.sleep({nap})
    os.write(1, b"y" * {piece})
"""
CURL = (
    "for n in $(seq 0 {last}); do began=$(date +%s%N); {source} curl -s -o /dev/null {options} -w '/item?n='$n'\\t"
    "%{{local_port}}\\t%{{time_connect}}\\t%{{time_pretransfer}}\\t%{{time_total}}\\t%{{http_code}}\\t'$began'\\t"
    "%{{time_starttransfer}}\\n' "
    "'http://{server}/item?n='$n; done"
)


class _Paced(Scenario):
    """One curl after the other."""

    hosts = addresses(client="10.68.0.10", app="10.68.0.30")
    needs = (GUNICORN_NEEDS, ("curl", "curl"))
    count = 12
    naps_s = (0.0, 0.0, 0.0, 0.0)
    pieces, piece_bytes, read_bytes = 1, 600, 1 << 20
    curl_options, source = "", ""
    first_byte_ns = 0.0  # how long curl waited for it, on average, from when it could send

    def start(self, lab: Lab) -> None:
        app = APP.format(
            log=str(lab.folder / "app.log"), naps=self.naps_s, pieces=self.pieces, piece=self.piece_bytes,
            read=self.read_bytes,
        )  # fmt: skip
        start_gunicorn(lab, "app", app, "--workers", "1", "--threads", "4")

    def traffic(self, lab: Lab) -> Truth:
        server = f"{lab.address('app')}:{PORT}"
        script = CURL.format(last=self.count - 1, source=self.source, options=self.curl_options, server=server)
        said = [line.rsplit("\t", 1) for line in lab.run("client", "sh", "-c", script).splitlines()]
        calls = logs.curl_calls("\n".join(line for line, _ in said), server)
        lines = {line["target"]: line for line in logs.lines_of(lab.folder / "app.log")}
        logs.with_server_times(calls, {target: _took_ns(line) for target, line in lines.items()}, 1_000)
        truth = Truth(calls=calls, names={server: rf"gunicorn|app:{PORT}"})
        ready_s = [line.split("\t")[3] for line, _ in said]
        self.first_byte_ns = _mean([_ns(first) - _ns(ready) for ready, (_, first) in zip(ready_s, said, strict=True)])
        self.refine(lab, truth, list(lines.values()))
        return truth

    def refine(self, lab: Lab, truth: Truth, lines: list[dict[str, Any]]) -> None:
        """What is true of this one alone, by the application's log."""


@scenario
class ChunkedSlowServer(_Paced):
    """An answer in 6 pieces, 80 ms between them, 40 ms before the first."""

    name = "chunked-slow-server"
    words = "gunicorn; an answer of 6 chunks, the application sleeps 80 ms between them; curl"
    naps_s = (0.04, 0.08, 0.0, 0.0)
    pieces, piece_bytes = 6, 2000

    def refine(self, lab: Lab, truth: Truth, lines: list[dict[str, Any]]) -> None:
        between = _mean([line["slept_ns"][1] for line in lines])
        truth.ledger = {
            "response_idle_ns": (between, between),
            "queue_ns+work_ns+response_idle_ns": _both(truth.calls),
            "request_network_ns+response_network_ns+send_held_ns+stall_ns": (0, 0),
        }


@scenario
class AnswerWithoutLength(_Paced):
    """An answer of HTTP/1.0 in 3 pieces, 80 ms between them; its connection, and so it, ends 120 ms after the last."""

    name = "answer-without-length"
    words = "gunicorn; an answer of 3 pieces to HTTP/1.0, 80 ms between them, closed 120 ms after the last; curl"
    naps_s = (0.04, 0.08, 0.0, 0.12)
    pieces, piece_bytes = 3, 2000
    curl_options = "--http1.0"

    def refine(self, lab: Lab, truth: Truth, lines: list[dict[str, Any]]) -> None:
        quiet = _mean([line["slept_ns"][1] + line["slept_ns"][3] for line in lines])
        truth.ledger = {
            "response_idle_ns": (quiet, quiet),
            "queue_ns+work_ns+response_idle_ns": _both(truth.calls),
            "request_network_ns+response_network_ns+send_held_ns+stall_ns": (0, 0),
        }

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        sentence = " ".join(said.report["story"]["sentence"].split())
        return [Verdict("headline: until it closed", "the close that ended it", sentence, "the close that" in sentence)]


@scenario
class WorkThenQuickAnswer(_Paced):
    """The innocent twin: as long at the server, all of it before an answer of one burst; the body sent at once."""

    name = "quick-bodies"
    words = "the same; the application sleeps 440 ms, then answers 1 MB at once; curl sends 200 kB at once"
    naps_s = (0.44, 0.0, 0.0, 0.0)
    pieces, piece_bytes = 1, 1_000_000
    source, curl_options = "head -c 200000 /dev/zero |", "-H Expect: --data-binary @-"

    def refine(self, lab: Lab, truth: Truth, lines: list[dict[str, Any]]) -> None:
        slept = _mean([line["slept_ns"][0] for line in lines])
        truth.ledger = {
            "queue_ns+work_ns": (slept, _both(truth.calls)[1]),
            "request_idle_ns+response_idle_ns+reader_wait_ns": (0, 0),
        }


@scenario
class SlowWriter(_Paced):
    """A body that its producer makes in 6 pieces, 90 ms between them; the server reads as it comes."""

    name = "slow-writer"
    words = "gunicorn; curl uploads what a pipe gives it, 6 pieces with 90 ms between them"
    source, curl_options = "", ""
    naps_s = (0.03, 0.0, 0.0, 0.0)

    def start(self, lab: Lab) -> None:
        super().start(lab)
        script = lab.file("producer.py", PRODUCER.format(pieces=6, nap=0.09, piece=3000))
        self.source = f"{sys.executable} {script} |"
        self.curl_options = f"-H Expect: -T - --trace-time --trace-ascii {lab.folder}/curl-$n.trace"

    def refine(self, lab: Lab, truth: Truth, lines: list[dict[str, Any]]) -> None:
        # Till the pipe ends, curl only waits for it, from its head on: a piece leaves in less than 0.1 ms. That is
        # longer than the producer's naps by what its interpreter takes to start and to end, as far as curl was ready.
        waited = _mean([_sending_ns(lab.folder / f"curl-{number}.trace") for number in range(self.count)])
        worked = _mean([line["slept_ns"][0] for line in lines])
        truth.ledger = {
            "client_ns+request_idle_ns": (waited, waited),
            "queue_ns+work_ns": (worked, worked),
            "request_network_ns+response_network_ns+send_held_ns+stall_ns": (0, 0),
        }


@scenario
class SlowReaderServer(_Paced):
    """An application that reads a body of 600 kB in pieces, 20 ms between them, through a receive buffer of 32 kB."""

    name = "slow-reader"
    words = "gunicorn; the application reads 600 kB in pieces of 16 kB with 20 ms between them; curl"
    naps_s = (0.0, 0.0, 0.02, 0.0)
    read_bytes = 16_384
    source, curl_options = "head -c 600000 /dev/zero |", "-H Expect: --data-binary @-"

    def start(self, lab: Lab) -> None:
        lab.tool("app", "sysctl", "-qw", "net.ipv4.tcp_rmem=4096 32768 32768")
        super().start(lab)

    def refine(self, lab: Lab, truth: Truth, lines: list[dict[str, Any]]) -> None:
        slept, whole = _mean([line["slept_ns"][2] for line in lines]), _both(truth.calls)[1]
        truth.ledger = {
            "reader_wait_ns+queue_ns+work_ns": (slept, whole),
            "request_idle_ns": (0, 0),
            # While the application sleeps nobody reads; only what is left can be the way's.
            "request_network_ns+response_network_ns+send_held_ns+stall_ns": (0, whole - slept),
        }
        truth.fault = Fault("zero_window: app reads late", ("zero_window",), ("app", "client"))


@scenario
class SlowReaderClient(_Paced):
    """A client that reads an answer of 3 MB at 4 MB/s, through a receive buffer of 64 kB."""

    name = "slow-reading-client"
    words = "gunicorn; 3 MB, that curl reads at 4 MB/s"
    count = 6
    naps_s = (0.02, 0.0, 0.0, 0.0)
    pieces, piece_bytes = 1, 3_000_000
    curl_options = "--limit-rate 4M"

    def start(self, lab: Lab) -> None:
        lab.tool("client", "sysctl", "-qw", "net.ipv4.tcp_rmem=4096 65536 65536")
        super().start(lab)

    def refine(self, lab: Lab, truth: Truth, lines: list[dict[str, Any]]) -> None:
        worked = _mean([line["slept_ns"][0] for line in lines])
        whole = _mean([call.client_ns or 0 for call in truth.calls])
        truth.ledger = {
            # The application's own, and at most till curl had the first byte: gunicorn hands requests to threads.
            "queue_ns+work_ns": (worked, self.first_byte_ns),
            "response_idle_ns": (0, 0),
            # What the buffers hold when the server has sent all is read after the last byte has arrived.
            "reader_wait_ns": (0.8 * (whole - worked), whole - worked),
        }
        truth.fault = Fault("zero_window: the client reads late", ("zero_window",), ("app", "client"))


def _sending_ns(trace: Path) -> int:
    """From the head that curl sent to the last it sent, by its own trace.

    Its lines begin with a time of day, of which only differences are right: curl 7.88 puts a monotonic clock on the
    second in which it began.
    """
    sent = re.findall(r"^(\d+):(\d+):(\d+)\.(\d+) => Send", trace.read_text("utf-8", "replace"), re.MULTILINE)
    first, last = ((int(h) * 60 + int(m)) * 60_000_000 + int(f"{s}{us}") for h, m, s, us in (sent[0], sent[-1]))
    return (last - first) % DAY_US * 1_000


def _ns(seconds: str) -> int:
    return round(float(seconds) * 1e9)


def _took_ns(line: dict[str, Any]) -> int:
    return int(line["ended_ns"] - line["began_ns"])


def _both(calls: list[Call]) -> tuple[float, float]:
    """What the server's log and the client's say of a request on average."""
    return _mean([call.server_ns or 0 for call in calls]), _mean([call.client_ns or 0 for call in calls])


def _mean(values: list[int]) -> float:
    return sum(values) / max(1, len(values))
