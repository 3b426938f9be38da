"""Two hosts on this machine: network namespaces `a` (10.9.0.1) and `b` (10.9.0.2), joined by a veth pair with TSO on.

Works as root, and as an ordinary user where the kernel allows user namespaces. Everything goes away with the processes
that hold the namespaces.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

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


class NoNamespacesError(Exception):
    """The kernel refused; its words."""


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
        """What it prints until it ends."""
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


@contextmanager
def pair() -> Iterator[Pair]:
    """Both hosts, up. Raises: NoNamespacesError where they cannot be made."""
    outer = ("unshare", "--net") if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--net")
    into = ("--net",) if os.geteuid() == 0 else ("--user", "--preserve-credentials", "--net")
    with ExitStack() as stack:

        def hold(*argv: str) -> tuple[str, ...]:
            process = subprocess.Popen(
                [*argv, "sh", "-c", HOLD], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise NoNamespacesError(process.communicate()[1].strip())
            return ("nsenter", "--target", str(process.pid), *into, "--")

        enter_a = hold(*outer)
        enter_b = hold(*enter_a, "unshare", "--net")
        a, b = Host("a", "10.9.0.1", "va", enter_a), Host("b", "10.9.0.2", "vb", enter_b)
        a.run("ip", "link", "add", "va", "type", "veth", "peer", "name", "vb", "netns", enter_b[2])
        for host in (a, b):
            host.run("ip", "address", "add", f"{host.address}/24", "dev", host.interface)
            host.run("ip", "link", "set", host.interface, "up")
        yield Pair(a, b)


def wait_for(process: subprocess.Popen[str], pattern: str) -> str:
    """Read a process's output up to a line that matches."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if re.search(pattern, line):
            return line
    raise AssertionError(f"ended without {pattern!r}: {said}")
