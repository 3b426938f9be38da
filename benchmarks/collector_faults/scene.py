"""Two agents and two collectors, which share a data directory or have one each, while requests are sent and faults are
injected; then what was sent, captured, acknowledged, stored and found in the trace is counted.

The hosts are those of `testkit.live_hosts.pair`: requests go from `a` to `b`, and an agent on each captures them. Both
collectors are on `a`, at ports by which the agents of `a` and `b` choose different ones first.
"""

import contextlib
import itertools
import json
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from collector.capture_files.joined import read_segments
from collector.capture_files.stored import LAST_NS, stored_files
from collector.trace.data_directory import host_folders, incarnation_folders
from collector.trace.reading import Trace
from collector.trace.schema import HopState
from testkit.live_hosts import TRACER, Host, Pair
from testkit.recorded_pair import HTTP_SERVER, POST, SESSION, TOKEN
from tracer.collector_choice import places_of, rank

TRAFFIC = """
import http.client, signal, sys, time
going = True
def end(*_):
    global going
    going = False
signal.signal(signal.SIGTERM, end)
connection = http.client.HTTPConnection(sys.argv[1], 8080)
print("ready", flush=True)
number = 0
while going:
    connection.request("GET", f"/ok/{number}", headers={"X-Request-Id": f"req-{number:06d}"})
    connection.getresponse().read()
    number += 1
    time.sleep(0.02)
connection.close()
print(number, flush=True)
"""
"""One request after another on one connection until SIGTERM; then their number."""
GET = """
import sys, urllib.request
headers = {"Authorization": "Bearer " + sys.argv[2]}
print(urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers=headers)).read().decode())
"""
CAPTURED = re.compile(r": ([\d,]+) packets, none dropped")
SENT = re.compile(r": ([\d,]+) segments sent, ([\d,]+) lost")
ENHANCED_PACKET_BLOCK = 6
PATIENCE_S = 60.0


@dataclass
class Process:
    """An agent or a collector, and the lines that it has printed."""

    argv: tuple[str, ...]
    lines: list[str] = field(default_factory=list)
    process: subprocess.Popen[str] | None = None

    def start(self, ready: str) -> None:
        """Run it; it has printed a line with `ready` in it."""
        self.process = subprocess.Popen(
            self.argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        begun = len(self.lines)
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()
        wait_until(lambda: any(ready in line for line in self.lines[begun:]), f"{ready}: {self.lines[begun:]}")

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                self.lines.append(line.rstrip())

    def send(self, number: int) -> None:
        """Send a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it; its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=60)


@dataclass(frozen=True)
class Counts:
    """What became of requests, packets and segments."""

    requests_sent: int
    requests_seen: dict[str, int]  # by host, of those in its capture
    captured: int  # packets, as the agents say
    stored: int  # of them in segments that a collector has, each segment once
    in_trace: int  # as the trace says
    segments_sent: int  # that were acknowledged, as the agents say
    segments: int  # that a collector has, each once
    held_twice: int  # segments that both have, on disks of their own
    lost_packets: int  # that the trace calls lost

    @property
    def lost(self) -> int:
        """Packets that an agent captured and no trace has."""
        return max(0, self.captured - self.in_trace)

    @property
    def surplus_count(self) -> int:
        """Packets that the trace has more often than they were captured."""
        return max(0, self.in_trace - self.captured)


class Scene:
    """Both collectors, both agents, and the requests; started by `run_collectors`."""

    def __init__(self, hosts: Pair, folder: Path, *, is_shared: bool, small_disk: str = "") -> None:
        """`small_disk`: the size of a disk for the first collector's data, such as `2m`; then root is needed."""
        self.hosts, self.folder, self.is_shared = hosts, folder, is_shared
        (folder / "token").write_text(TOKEN)
        self.secret = ("--token-file", str(folder / "token"), "--plain-http")  # within our own namespaces
        self.urls = _urls(hosts.a.address)
        self.data = [folder / "data"] * 2 if is_shared else [folder / "data1", folder / "data2"]
        self.small_disk = small_disk
        self.collectors = [Process(self._collect(number)) for number in range(2)]
        self.agents = {host.name: Process(self._capture(host)) for host in (hosts.a, hosts.b)}

    def _collect(self, number: int) -> tuple[str, ...]:
        listen = self.urls[number].removeprefix("http://")
        shared = ("--shared", "--live-window", "2") if self.is_shared else ("--live-window", "0")
        argv = (*TRACER, "collect", "--data", str(self.data[number]), "--listen", listen, *self.secret, *shared)
        if not self.small_disk or number:
            return (*self.hosts.a.enter, *argv)
        self.data[0].mkdir()
        mount = f'mount -t tmpfs -o size={self.small_disk} none {self.data[0]} && exec "$@"'
        own = ("unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh")
        return (*self.hosts.a.enter, *own, *argv)

    def _capture(self, host: Host) -> tuple[str, ...]:
        where = ("--collector", ",".join(self.urls), "--session", SESSION, "--spool", str(self.folder / "spool"))
        argv = (*TRACER, "capture", "-i", host.interface, "--host", host.name, *where, *self.secret, "--owners", "none")
        return (*host.enter, *argv, "tcp port 8080")

    def numbers(self, collector: int, host: str) -> list[int]:
        """The numbers of the segments of a host that a collector's folder holds."""
        folder = self._visible(collector) / "sessions" / SESSION / host
        found = (
            (each for place in incarnation_folders(folder) for each in stored_files(place)) if folder.is_dir() else ()
        )
        return sorted(number for each in found for first, last in each.runs for number in range(first, last + 1))

    def count(self, host: str) -> int:
        """How many segments of a host the collectors hold."""
        return sum(len(self.numbers(number, host)) for number in ((0,) if self.is_shared else (0, 1)))

    def wait_for_more(self, *hosts: str) -> None:
        """Wait until further segments of hosts, or of both, have arrived."""
        before = {host: self.count(host) for host in hosts or ("a", "b")}
        wait_until(lambda: all(self.count(host) > count + 1 for host, count in before.items()), f"segments of {hosts}")

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until it holds; it is dear to ask for."""
        wait_until(condition, what, pause_seconds=1)

    def wait_for_line(self, process: Process, text: str) -> None:
        """Wait until a process says so."""
        wait_until(lambda: any(text in line for line in process.lines), f"{text}: {process.lines}")

    def ask(self, path: str, collector: int, body: str = "{}") -> Any:
        """The answer of a collector to a POST."""
        url = f"{self.urls[collector]}/api/{path}"
        return json.loads(self.hosts.a.run(sys.executable, "-c", POST, url, TOKEN, body).stdout)

    def agent_problems(self, collector: int) -> dict[str, list[str]]:
        """By host, what the page of a collector says is wrong."""
        url = f"{self.urls[collector]}/api/agents"
        found = json.loads(self.hosts.a.run(sys.executable, "-c", GET, url, TOKEN).stdout)
        return {each["host"]: [problem["what"] for problem in each["problems"]] for each in found}

    def _visible(self, collector: int) -> Path:
        """A collector's folder, on whatever disk."""
        data = self.data[collector]
        process = self.collectors[collector].process
        if self.small_disk and not collector and process is not None and process.poll() is None:
            return Path(f"/proc/{process.pid}/root{data}")
        return data

    def keep_small_disk(self) -> None:
        """Copy what is on the small disk, which goes with its collector."""
        if self.small_disk:
            shutil.copytree(self._visible(0) / "sessions", self.data[0] / "sessions")

    def trace(self) -> str:
        """The trace of the session, made by a collector that has all of it, or from the folders of both."""
        if self.is_shared:
            return str(self.ask(f"sessions/{SESSION}/analyse", 1)["trace"])
        trace = self.folder / "trace"
        folders = [str(data / "sessions" / SESSION) for data in self.data if (data / "sessions" / SESSION).is_dir()]
        subprocess.run([*TRACER, "replay", "--quiet", "-o", str(trace), *folders], check=True, capture_output=True)
        return str(trace)


@contextmanager
def run_collectors(scene: Scene) -> Iterator[Callable[[], Counts]]:
    """Everything runs; what is given ends the requests and the agents, has the session analysed, and counts."""
    hosts = scene.hosts
    with ExitStack() as running:
        for process in (*scene.collectors, *scene.agents.values()):
            running.callback(_kill, process)
        for process in scene.collectors:
            process.start("collecting at")
        server = (sys.executable, "-c", HTTP_SERVER, hosts.b.address)
        running.enter_context(hosts.b.running(*server, ready="ready"))
        for process in scene.agents.values():
            process.start("capturing on")
        traffic = (sys.executable, "-c", TRAFFIC, hosts.b.address)
        client = running.enter_context(hosts.a.running(*traffic, ready="ready"))

        def end() -> Counts:
            client.terminate()
            assert client.stdout is not None
            requests_sent = int(client.stdout.readline())
            for process in scene.agents.values():
                status = process.end()
                assert status == 0, f"an agent ended with {status}: {process.lines[-3:]}"
            scene.keep_small_disk()
            return _counts(scene, requests_sent, scene.trace())

        yield end


def _kill(process: Process) -> None:
    if process.process is not None and process.process.poll() is None:
        process.send(signal.SIGCONT)
        process.end(signal.SIGKILL)


def _urls(address: str) -> list[str]:
    """Two collectors: the first is the choice of the host `a`, the second that of `b`."""
    for one, other in itertools.permutations(range(8710, 8730), 2):
        urls = [f"http://{address}:{port}" for port in (one, other)]
        if [rank(places_of(urls, lambda _: ()), host)[0].url for host in ("a", "b")] == urls:
            return urls
    raise AssertionError("some ports do")


def _counts(scene: Scene, requests_sent: int, trace: str) -> Counts:
    said = ["\n".join(process.lines) for process in scene.agents.values()]
    sent = [SENT.findall(text)[-1] for text in said]
    assert all(lost == "0" for _, lost in sent), said
    held = Counter[tuple[str, str, int]]()
    packets: dict[tuple[str, str, int], int] = {}
    for data in dict.fromkeys(scene.data):
        for key, content in _segments(data / "sessions" / SESSION):
            held[key] += 1
            packets[key] = _packets_count(content)
    info = Trace(trace).info()
    messages = pl.DataFrame(Trace(trace).read("messages", ["host", "transaction_id"]))
    ids = messages.with_columns(pl.col(pl.Categorical).cast(pl.String)).unique()
    ids = ids.filter(pl.col("transaction_id").str.starts_with("req-"))
    states = pl.DataFrame(Trace(trace).read("hops", ["state"]))["state"].cast(pl.String)
    return Counts(
        requests_sent=requests_sent,
        requests_seen=dict(Counter(ids["host"].to_list())),
        captured=sum(_number(CAPTURED.findall(text)[-1]) for text in said),
        stored=sum(packets.values()),
        in_trace=sum(host.packets_count for host in info.hosts),
        segments_sent=sum(_number(count) for count, _ in sent),
        segments=len(held),
        held_twice=sum(count > 1 for count in held.values()),
        lost_packets=int((states == HopState.LOST).sum()),
    )


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _segments(session: Path) -> Iterator[tuple[tuple[str, str, int], bytes]]:
    """Host, incarnation and number of each segment in a session's folder, with its content."""
    for host in host_folders(session):
        for folder in incarnation_folders(host):
            for each in stored_files(folder):
                for number, _, content in read_segments(each.path, 0, LAST_NS):
                    yield (host.name, folder.name, number), content


def _packets_count(content: bytes) -> int:
    """Enhanced packet blocks, counted without the project's readers."""
    count = at = 0
    while at < len(content):
        kind, length = struct.unpack_from("<II", content, at)
        count += kind == ENHANCED_PACKET_BLOCK
        at += length
    return count


def wait_until(condition: Callable[[], bool], what: str, pause_seconds: float = 0.05) -> None:
    """Poll until it holds. Raises: AssertionError after a minute."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(FileNotFoundError):  # a folder is being replaced
            if condition():
                return
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(pause_seconds)
