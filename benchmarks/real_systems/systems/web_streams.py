"""Server-sent events, WebSockets behind nginx, and, beside them, answers that are only slow.

Truth: the applications' logs (`benchmarks/real_systems/web_apps.py`), nginx's, curl's times.
"""

import json
import subprocess
import time
from pathlib import Path

from benchmarks.real_systems import logs
from benchmarks.real_systems.capturing import TCPDUMP
from benchmarks.real_systems.lab import ROOT, Lab
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Call, StreamTruth, Truth

PYTHON = "/usr/bin/python3"
APPS = str(ROOT / "benchmarks/real_systems/web_apps.py")
CURL = (
    "for n in $(seq {first} {last}); do began=$(date +%s%N); curl -s -o /dev/null "
    "-w '{path}?n='$n'\\t%{{local_port}}\\t"
    "%{{time_connect}}\\t%{{time_pretransfer}}\\t%{{time_total}}\\t%{{http_code}}\\t'$began'\\n' "
    "http://{server}{path}?n=$n; done"
)
NGINX = """worker_processes 1; daemon off; user root; pid {folder}/nginx.pid; error_log {folder}/nginx.error;
events {{ worker_connections 1000; }}
http {{
  log_format judge '$request_uri\t$request_time\t$status';
  access_log {folder}/nginx.log judge;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen {address}:80;
    location /socket {{
      proxy_pass http://{app}; proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade";
    }}
    location / {{ root {folder}/files; }}
  }}
}}
"""


def lines(log: Path, kind: str) -> int:
    """How many lines of a kind a log has."""
    return sum(json.loads(line)["kind"] == kind for line in log.read_text("utf-8").splitlines())


@scenario
class ServerSentEvents(Scenario):
    """Three readers of events, beside slow answers and answers in pieces."""

    name = "sse"
    words = "aiohttp; 3 readers of 12 events each, 6 answers after 0.4 s, 4 answers in 12 pieces"
    hosts = addresses(client="10.68.0.10", reader="10.68.0.15", web="10.68.0.20")
    needs = (("curl", "curl"), ("/usr/lib/python3/dist-packages/aiohttp", "python3-aiohttp"))

    def start(self, lab: Lab) -> None:
        address, log = lab.address("web"), str(lab.folder / "app.log")
        lab.start("web", PYTHON, APPS, "app", address, "8080", log, port=8080, name="app")

    def traffic(self, lab: Lab) -> Truth:
        server = f"{lab.address('web')}:8080"
        for number in range(3):
            lab.start("reader", "curl", "-sN", f"http://{server}/events", name=f"reader{number}")
        said = lab.run("client", "sh", "-c", CURL.format(first=0, last=5, path="/slow", server=server))
        said += lab.run("client", "sh", "-c", CURL.format(first=6, last=9, path="/pieces", server=server))
        calls, log = logs.curl_calls(said, server), lab.folder / "app.log"
        rows = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
        logs.with_server_times(
            calls, {row["target"]: row["took_ns"] for row in rows if row["kind"] == "request"}, 1_000
        )
        sent = lines(log, "event")
        return Truth(calls=calls, streams=[StreamTruth(server, 3, (sent, sent + 3))])  # each ends with an empty chunk


@scenario
class WebSocket(Scenario):
    """Two talkers through nginx, and files from the same nginx."""

    name = "websocket"
    words = "websockets behind nginx; 2 clients, 12 messages pushed to each, 4 said and echoed; 20 files"
    hosts = addresses(client="10.68.0.10", web="10.68.0.20", app="10.68.0.30")
    needs = (
        ("curl", "curl"),
        ("nginx", "nginx-light"),
        ("/usr/lib/python3/dist-packages/websockets", "python3-websockets"),
    )
    pushed, sent = 12, 4
    controls = 0  # pings, pongs and closes that count as messages

    def start(self, lab: Lab) -> None:
        app = f"{lab.address('app')}:8765"
        lab.file("files/file", "x" * 900)
        lab.folder.chmod(0o755)
        log = str(lab.folder / "app.log")
        words = ("socket", lab.address("app"), "8765", log, str(self.pushed))
        lab.start("app", PYTHON, APPS, *words, port=8765, name="app")
        conf = lab.file("nginx.conf", NGINX.format(folder=lab.folder, app=app, address=lab.address("web")))
        lab.start("web", "nginx", "-c", str(conf), port=80)

    def talkers(self, lab: Lab) -> list[subprocess.Popen[str]]:
        """Both of them, begun."""
        words = ("talk", f"ws://{lab.address('web')}:80/socket", str(self.sent), str(self.pushed))
        return [lab.begin("client", PYTHON, APPS, *words) for _ in range(2)]

    def traffic(self, lab: Lab) -> Truth:
        web, app = f"{lab.address('web')}:80", f"{lab.address('app')}:8765"
        talking = self.talkers(lab)
        said = lab.run("client", "sh", "-c", CURL.format(first=0, last=19, path="/file", server=web))
        for each in talking:
            each.communicate(timeout=60)
        pushed = lines(lab.folder / "app.log", "pushed")
        calls: list[Call] = [*logs.curl_calls(said, web), *self.handshakes(web, app)]
        streams = [StreamTruth(server, 2, (pushed, pushed + self.controls)) for server in (web, app)]
        return Truth(calls=calls, streams=streams)

    def handshakes(self, web: str, app: str) -> list[Call]:
        """The requests that asked for WebSockets; no log has their times."""
        return [
            Call(f"{server} {number}", server, "/socket", status=101, parent="" if server == web else None)
            for server in (web, app)
            for number in range(2)
        ]


@scenario
class WebSocketMidway(WebSocket):
    """The same, longer, and begun before the captures were: no 101 is in them.

    Of what an agent keeps by default nothing shows frames, so tcpdump's captures alone are judged.
    """

    name = "websocket-midway"
    words = "the same; 60 messages pushed to each, 16 said and echoed; captured by tcpdump from the middle on"
    by = (TCPDUMP,)
    pushed, sent = 60, 16
    controls = 2 * 3  # without the 101 all that is sent at once counts

    def start(self, lab: Lab) -> None:
        super().start(lab)
        self._talking = super().talkers(lab)
        time.sleep(1.0)

    def talkers(self, lab: Lab) -> list[subprocess.Popen[str]]:
        return self._talking

    def handshakes(self, web: str, app: str) -> list[Call]:
        return []  # before the captures

    def traffic(self, lab: Lab) -> Truth:
        began_ns = time.time_ns()
        truth = super().traffic(lab)
        pushed = [line for line in logs.lines_of(lab.folder / "app.log") if line["kind"] == "pushed"]
        least = sum(line["at_ns"] > began_ns for line in pushed)
        truth.streams = [StreamTruth(one.server, one.count, (least, one.to_clients[1])) for one in truth.streams or ()]
        return truth
