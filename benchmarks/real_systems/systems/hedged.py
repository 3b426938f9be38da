"""A gate that asks a second server while the first has not answered, and leaves the first when the second has.

Once for the same thing (a hedged request), and once for another thing, whose answer is no answer to the first. From
outside both look alike but for what is asked; what the gate's request waited for is not.

Truth: the gate's own log of when it asked each, when it was answered, and when it left; the client's log.
"""

import json
import sys
from typing import ClassVar

from benchmarks.real_systems import logs
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Truth
from benchmarks.real_systems.verdict import Verdict, in_ms, within

PORT, HEDGE_S = 8000, 0.08
APP = """
import sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        time.sleep(float(sys.argv[2]))
        try:
            self.wfile.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 300\\r\\n\\r\\n" + b"x" * 300)
        except OSError:
            pass  # its client has left
    def log_message(self, *_):
        pass
ThreadingHTTPServer((sys.argv[1], 8000), Handler).serve_forever()
"""
GATE = """
import json, os, select, socket, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
settings = json.loads(sys.argv[1])
LOG = os.open(settings["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def ask(host, target):
    sock = socket.create_connection((host, 8000))
    sock.sendall(f"GET {target} HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n".encode())
    return sock
def read(sock):
    answer = b""
    while len(answer.partition(b"\\r\\n\\r\\n")[2]) < 300:
        answer += sock.recv(4096)
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        at = [time.time_ns()]
        first = ask(settings["first"], self.path)
        second = None
        if not select.select([first], [], [], settings["hedge_s"])[0]:
            at.append(time.time_ns())
            second = ask(settings["second"], self.path if settings["same"] else self.path.replace("item", "extra"))
        ready = select.select([one for one in (first, second) if one], [], [])[0]
        read(ready[0])
        first.close()
        at.append(time.time_ns())
        if second:
            second.close()
        time.sleep(0.01)
        self.wfile.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 300\\r\\n\\r\\n" + b"x" * 300)
        os.write(LOG, (json.dumps(dict(target=self.path, at=at, used=ready[0] is second)) + chr(10)).encode())
    def log_message(self, *_):
        pass
ThreadingHTTPServer((settings["address"], 8000), Handler).serve_forever()
"""


class _Gate(Scenario):
    """24 requests; the first server takes 0.4 s, the second 60 ms, and is asked after 80 ms."""

    hosts = addresses(client="10.68.0.10", gate="10.68.0.20", app1="10.68.0.31", app2="10.68.0.32")
    count = 24
    same: ClassVar[bool]

    def start(self, lab: Lab) -> None:
        app, gate = str(lab.file("app.py", APP)), str(lab.file("gate.py", GATE))
        for host, work_s in (("app1", "0.4"), ("app2", "0.06")):
            lab.start(host, sys.executable, app, lab.address(host), work_s, port=PORT, name="app")
        settings = {
            "address": lab.address("gate"), "first": lab.address("app1"), "second": lab.address("app2"),
            "hedge_s": HEDGE_S, "same": self.same, "log": str(lab.folder / "gate.log"),
        }  # fmt: skip
        lab.start("gate", sys.executable, gate, json.dumps(settings), port=PORT, name="gate")

    def traffic(self, lab: Lab) -> Truth:
        gate = f"{lab.address('gate')}:{PORT}"
        calls = logs.client_calls(lab.python("client", "http_client", f"http://{gate}", str(self.count)), gate)
        lines = logs.lines_of(lab.folder / "gate.log")
        assert all(line["used"] for line in lines)
        waited = [(line["at"][1] - line["at"][0], line["at"][2] - line["at"][1]) for line in lines]
        first, second = (sum(each) / len(lines) for each in zip(*waited, strict=True))
        only = ("requests to", "requests of", "durations at the client", "findings", "words", "products", "failed")
        truth = Truth(calls=calls, only=only)
        # Another thing's answer is none to the first, which the gate waited for until it left.
        truth.more = {"app1": first, "app2": second} if self.same else {"app1": first + second, "app2": 0.0}
        return truth

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        found = []
        for host, true_ns in truth.more.items():
            own = [row for row in said.exchanges.to_dicts() if row["server_host"] == host]
            said_ns = sum(row["critical_ns"] for row in own) / max(1, len(truth.calls))
            words = f"time a request waited for {host}"
            found.append(Verdict(words, in_ms(true_ns), in_ms(said_ns), within(said_ns, (true_ns, true_ns))))
        return found


@scenario
class Hedged(_Gate):
    """Both are asked for the same."""

    name = "hedged"
    words = "a Python gate; asks app2 the same when app1 has not answered in 80 ms, takes its answer, leaves app1"
    same = True


@scenario
class NotHedged(_Gate):
    """The second is asked for something else."""

    name = "hedged-twin"
    words = "the same, but app2 is asked for another thing; app1 is left at the same moment"
    same = False
