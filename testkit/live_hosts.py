"""Two hosts on this machine: network namespaces `a` (10.9.0.1) and `b` (10.9.0.2), joined by a veth pair with TSO on,
or by a long way that carries frames of one MSS and can lose some of them; or any number of them around a bridge.

Works as root, and as an ordinary user where the kernel allows user namespaces. Everything goes away with the processes
that hold the namespaces.
"""

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from storage_cluster.faults.relay import Rule

TRACER = (sys.executable, "-P", "-m", "tracer")
HOLD = "ip link set lo up; echo ready; exec sleep infinity"

SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.answer(200, b"SECRET-BODY" * (int(self.path.split("=")[-1]) // 11))
    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(201, b"")
    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "SECRET-COOKIE=1")
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer((sys.argv[1], 8080), Handler)
print("ready", flush=True)
server.serve_forever()
"""

CLIENT = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], 8080)
headers = {"X-Auth-Token": "SECRET-TOKEN", "X-Trans-Id": "tx-visible"}
for size in map(int, sys.argv[2:]):
    connection.request("PUT", "/o?temp_url_sig=SECRET-SIG&size=1", b"SECRET-BODY" * (size // 11), headers)
    connection.getresponse().read()
    connection.request("GET", f"/o?Signature=SECRET-SIG&size={size}", headers=headers)
    connection.getresponse().read()
connection.close()
"""


CUT_TO_MSS = """
import sys
from storage_cluster.hosts.offload import set_offload
set_offload(sys.argv[1], tso=False, gso=False, gro=False)
"""


class NoNamespacesError(Exception):
    """The kernel refused to make namespaces; the message is its own."""


@dataclass(frozen=True)
class Host:
    """One namespace: `enter` runs a command there."""

    name: str
    address: str
    interface: str
    enter: tuple[str, ...]

    def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.enter, *argv], capture_output=True, text=True, check=check, timeout=60)

    @contextmanager
    def running(self, *argv: str, ready: str) -> Iterator[subprocess.Popen[str]]:
        """A command there that has printed a line with `ready` in it (on either stream); killed at the end."""
        process = subprocess.Popen(
            [*self.enter, *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
        )
        try:
            wait_for(process, ready)
            yield process
        finally:
            process.kill()
            process.communicate()

    def capture(self, folder: Path, *options: str) -> "Capturing":
        """An agent there, on its interface unless `options` name another."""
        chosen = () if "-i" in options else ("-i", self.interface)
        return Capturing(self, (*TRACER, "capture", *chosen, "--host", self.name, "--write", str(folder), *options))


class Capturing:
    """A running agent; `stop` returns what it printed."""

    def __init__(self, host: Host, argv: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            [*host.enter, *argv], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )

    def __enter__(self) -> "Capturing":
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if "capturing on" in line:
                return self
        raise AssertionError("the agent ended before it captured")

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def stop(self) -> str:
        self.process.terminate()
        return self.rest()

    def rest(self) -> str:
        """All that it prints until it ends."""
        _, said = self.process.communicate(timeout=60)
        return said


@dataclass(frozen=True)
class Pair:
    """Both hosts."""

    a: Host
    b: Host

    def exchange(self, *sizes: int) -> None:
        """Upload and download bodies of these sizes, from `a` to `b`, on one connection."""
        with self.b.running(sys.executable, "-c", SERVER, self.b.address, ready="ready"):
            self.a.run(sys.executable, "-c", CLIENT, self.b.address, *map(str, sizes))


@dataclass(frozen=True)
class Star:
    """A host in the middle, which is the bridge (10.9.0.1), and those around it, `h1` (10.9.0.11) and so on."""

    hub: Host
    around: tuple[Host, ...]


@contextmanager
def star(count: int) -> Iterator[Star]:
    """So many hosts around one, up. Raises: NoNamespacesError where they cannot be made."""
    with ExitStack() as stack:
        outer = ("unshare", "--net") if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--net")
        hub = Host("hub", "10.9.0.1", "bridge", _hold(stack, *outer))
        hub.run("ip", "link", "add", hub.interface, "type", "bridge")
        _give_address(hub)
        around = []
        for number in range(1, count + 1):
            enter = _hold(stack, *hub.enter, "unshare", "--net")
            host, port = Host(f"h{number}", f"10.9.0.{10 + number}", "eth", enter), f"port{number}"
            _cable(host, host.interface, port, hub)
            hub.run("ip", "link", "set", port, "master", hub.interface, "up")
            _give_address(host)
            around.append(host)
        yield Star(hub, tuple(around))


@contextmanager
def pair() -> Iterator[Pair]:
    """Both hosts, up. Raises: NoNamespacesError where they cannot be made."""
    with ExitStack() as stack:
        both = _hosts(stack)
        _cable(both.a, "va", "vb", both.b)
        yield _up(both)


@contextmanager
def container(host: Host) -> Iterator[Host]:
    """A network namespace as a container's, 10.77.0.2, behind the interface `vc` of a host, which forwards for it."""
    with ExitStack() as stack:
        made = Host("container", "10.77.0.2", "eth0", _hold(stack, *host.enter, "unshare", "--net"))
        _cable(host, "vc", made.interface, made)
        stack.callback(host.run, "ip", "link", "delete", "vc", check=False)
        host.run("ip", "address", "add", "10.77.0.1/24", "dev", "vc")
        host.run("ip", "link", "set", "vc", "up")
        host.run("sysctl", "-q", "net.ipv4.ip_forward=1")
        _give_address(made)
        made.run("ip", "route", "add", "default", "via", "10.77.0.1")
        yield made


@contextmanager
def far_pair(one_way_ms: float, lost: Sequence[str] = (), rules: Sequence[Rule] = ()) -> Iterator[Pair]:
    """Both hosts, so far apart; of each text in `lost` the first frame with it is lost on the way (or as
    `testkit.lossy_path` says); `rules`, what else happens to frames there.

    Raises: NoNamespacesError where they cannot be made.
    """
    with ExitStack() as stack:
        both = _hosts(stack)
        between = Host("between", "", "", _hold(stack, *both.a.enter, "unshare", "--net"))
        _cable(between, "wa", "va", both.a)
        _cable(between, "wb", "vb", both.b)
        for host, interface in ((both.a, "va"), (both.b, "vb"), (between, "wa"), (between, "wb")):
            host.run(sys.executable, "-c", CUT_TO_MSS, interface)
            host.run("ip", "link", "set", interface, "up")
        way = subprocess.Popen(
            [*between.enter, sys.executable, "-m", "testkit.lossy_path", "wa", "wb", *lost],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        stack.callback(way.communicate)
        stack.callback(way.kill)
        wait_for(way, "ready")
        assert way.stdin is not None
        way.stdin.write(json.dumps([dataclasses.asdict(rule) for rule in (_late(one_way_ms), *rules)]) + "\n")
        way.stdin.flush()
        yield _up(both)


def _late(one_way_ms: float) -> Rule:
    delay_ns = round(one_way_ms * 1e6)
    return Rule("", True, True, probability=1, delay_ns=delay_ns, jitter_ns=0, overtaken=False, seed=None)


def _hosts(stack: ExitStack) -> Pair:
    outer = ("unshare", "--net") if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--net")
    enter_a = _hold(stack, *outer)
    enter_b = _hold(stack, *enter_a, "unshare", "--net")
    return Pair(Host("a", "10.9.0.1", "va", enter_a), Host("b", "10.9.0.2", "vb", enter_b))


def _hold(stack: ExitStack, *argv: str) -> tuple[str, ...]:
    """A command that makes a namespace, kept as long as `stack`; how to enter it."""
    into = ("--net",) if os.geteuid() == 0 else ("--user", "--preserve-credentials", "--net")
    process = subprocess.Popen([*argv, "sh", "-c", HOLD], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    stack.callback(process.communicate)
    stack.callback(process.kill)
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise NoNamespacesError(process.communicate()[1].strip())
    return ("nsenter", "--target", str(process.pid), *into, "--")


def _cable(host: Host, end: str, other_end: str, other: Host) -> None:
    pid = other.enter[2]
    host.run("ip", "link", "add", end, "type", "veth", "peer", "name", other_end, "netns", pid)


def _up(both: Pair) -> Pair:
    for host in (both.a, both.b):
        _give_address(host)
    return both


def _give_address(host: Host) -> None:
    host.run("ip", "address", "add", f"{host.address}/24", "dev", host.interface)
    host.run("ip", "link", "set", host.interface, "up")


def wait_for(process: subprocess.Popen[str], pattern: str) -> str:
    """Read a process's output up to a line that matches."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if re.search(pattern, line):
            return line
    raise AssertionError(f"ended without {pattern!r}: {said}")
