"""Flight recorders on both hosts of `testkit.live_hosts`, their collector on `a`, and an HTTP server on `b`.

What came of it is found in files, as the collector leaves them.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testkit.live_hosts import TRACER, Capturing, Pair

SESSION, TOKEN, PORT = "shop", "recorded", 8710
HTTP_SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(500 if self.path.startswith("/fail") else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer((sys.argv[1], 8080), Handler)
print("ready", flush=True)
server.serve_forever()
"""
TRAFFIC = """
import http.client, sys, time
connection = http.client.HTTPConnection(sys.argv[1], 8080)
print("ready", flush=True)
number = 0
while True:
    connection.request("GET", f"/ok/{number}", headers={"X-Request-Id": f"req-{number:06d}"})
    connection.getresponse().read()
    number += 1
    time.sleep(0.02)
"""
FAILING = """
import http.client, sys, time
connection = http.client.HTTPConnection(sys.argv[1], 8080)
connection.request("GET", "/fail", headers={"X-Request-Id": sys.argv[2]})
assert connection.getresponse().status == 500
print(time.time_ns())
"""

POST = """
import sys, urllib.request
headers = {"Authorization": "Bearer " + sys.argv[2], "Content-Type": "application/json"}
print(urllib.request.urlopen(urllib.request.Request(sys.argv[1], sys.argv[3].encode(), headers)).read().decode())
"""


@dataclass(frozen=True)
class RecordedPair:
    """Both hosts while they are recorded, and the collector's folder."""

    hosts: Pair
    data: Path

    def fail(self, name: str) -> int:
        """Send a request that is answered by an error; when it was, in ns."""
        return int(self.hosts.a.run(sys.executable, "-c", FAILING, self.hosts.b.address, name).stdout)

    def ask(self, **wish: Any) -> dict[str, Any]:
        """Ask the collector for a window."""
        url = f"http://{self.hosts.a.address}:{PORT}/api/sessions/{SESSION}/windows"
        found: dict[str, Any] = json.loads(
            self.hosts.a.run(sys.executable, "-c", POST, url, TOKEN, json.dumps(wish)).stdout
        )
        return found

    def windows(self) -> list[dict[str, Any]]:
        """The windows, the oldest first."""
        found = [json.loads(path.read_text()) for path in self.data.glob("sessions/*/window.json")]
        return sorted(found, key=lambda each: int(each["opened_ns"]))

    def trace(self, window: dict[str, Any]) -> str:
        """The place of a window's trace."""
        return str(self.data / "traces" / window["window"])

    @property
    def live_trace(self) -> str:
        """The place of the trace of the newest seconds."""
        return str(self.data / "sessions" / SESSION / "live")


@contextmanager
def record_pair(hosts: Pair, folder: Path, *collect: str, capture: Sequence[str] = ()) -> Iterator[RecordedPair]:
    """Two recorders with requests from `a` to `b`, 50 a second. Arguments: options of `collect`, and of `capture`."""
    data, place = folder / "data", f"{hosts.a.address}:{PORT}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "token").write_text(TOKEN)
    secret = ("--token-file", str(folder / "token"), "--plain-http")  # within our own namespaces
    with ExitStack() as running:
        collector = (*TRACER, "collect", "--data", str(data), "--listen", place, *secret, *collect)
        running.enter_context(hosts.a.running(*collector, ready="collecting at"))
        for host in (hosts.a, hosts.b):
            keep = ("--keep", "64MiB", "--collector", f"http://{place}", "--session", SESSION, *secret)
            spool = ("--spool", str(folder / f"spool-{host.name}"))
            argv = (*TRACER, "capture", "-i", host.interface, "--host", host.name, *keep, *spool, *capture)
            running.enter_context(Capturing(host, (*argv, "tcp port 8080")))
        server = (sys.executable, "-c", HTTP_SERVER, hosts.b.address)
        running.enter_context(hosts.b.running(*server, ready="ready"))
        traffic = (sys.executable, "-c", TRAFFIC, hosts.b.address)
        running.enter_context(hosts.a.running(*traffic, ready="ready"))
        yield RecordedPair(hosts, data)
