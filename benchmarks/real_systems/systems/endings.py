"""Who ended a request that was not wholly answered: clients that give up or leave, servers that close early or die.

gunicorn serves a small program, in most of these behind nothing, in two behind nginx. Truth: the clients' own logs
(what each read, or why it read nothing), curl's exit statuses, and the fault itself. Each has its innocent twin.
"""

import os
import signal
import sys
import time
from pathlib import Path

import polars as pl

from benchmarks.real_systems import logs, web_servers
from benchmarks.real_systems.judge import Verdict
from benchmarks.real_systems.lab import Lab, rest_of
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.systems.postgresql import PostgreSQL, start_postgresql
from benchmarks.real_systems.truth import Call, Fault, Truth

PORT = 8000
APP = """
import time
def application(environ, start_response):
    number = int(environ["QUERY_STRING"].rpartition("n=")[2] or 0)
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
{body}
"""
SLOW = """
    time.sleep(1.0 if number % 6 == 5 else 0.02)
    start_response("200 OK", [("Content-Length", "600")])
    return [b"x" * 600]
"""
BROKEN = """
    def pieces():
        yield b"x" * 40000
        time.sleep(0.01)
        if number % 2:
            raise RuntimeError("the program fails in the middle of its answer")
        yield b"x" * 20000
    start_response("200 OK", [("Content-Length", "60000")])
    return pieces()
"""
WITHOUT_LENGTH = """
    def pieces():
        yield b"x" * 40000
        time.sleep(0.01)
        yield b"x" * 20000
    start_response("200 OK", [])
    return pieces()
"""
STEADY = """
    time.sleep(0.3 + 0.03 * (number % 7))
    start_response("200 OK", [("Content-Length", "600")])
    return [b"x" * 600]
"""
NGINX = """worker_processes 1; daemon off; user root; pid {folder}/nginx.pid; error_log {folder}/nginx.error;
events {{ worker_connections 1000; }}
http {{
  access_log {folder}/nginx.log;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen {address}:80;
    {places}
  }}
}}
"""
ASKER = """
import socket, time
until, left, asked, sock = time.monotonic() + 6.5, 0, 0, None
while time.monotonic() < until:
    if sock is None:
        sock = socket.create_connection(("{address}", 6379))
        sock.settimeout({timeout})
    gave_up = False
    try:
        sock.sendall(b"*2\\r\\n$3\\r\\nGET\\r\\n$1\\r\\na\\r\\n")
        sock.recv(100)
    except TimeoutError:
        gave_up = True
    asked, left = asked + 1, left + gave_up
    if gave_up or asked % 50 == 0:
        sock.close()
        sock = None
    time.sleep(0.01)
print(left)
"""
NEEDS = (("gunicorn", "gunicorn"),)
HOSTS = addresses(client="10.68.0.10", app="10.68.0.30")
BEHIND_NGINX = addresses(client="10.68.0.10", web="10.68.0.20", app="10.68.0.30")


def start_gunicorn(lab: Lab, body: str) -> str:
    """One worker process of 8 threads; returns its address and port."""
    web_servers.start_gunicorn(
        lab, "app", APP.format(body=body), "--workers", "1", "--threads", "8", "--worker-class", "gthread", port=PORT
    )
    return f"{lab.address('app')}:{PORT}"


def start_nginx(lab: Lab, places: str) -> None:
    """Before what `places` name."""
    conf = lab.file("nginx.conf", NGINX.format(folder=lab.folder, address=lab.address("web"), places=places))
    lab.start("web", "nginx", "-c", str(conf), port=80)


def left_by_client(calls: list[Call]) -> list[Call]:
    """Those that their client did not wait for, marked as such."""
    for call in calls:
        call.abandoned = call.status == 0
    return calls


@scenario
class ClientTimeout(Scenario):
    """120 requests of 4 clients that wait for 0.3 s; every 6th answer takes 1 s."""

    name = "client-timeout"
    words = "gunicorn; clients with a timeout of 0.3 s, every 6th answer takes 1 s"
    hosts, needs = HOSTS, NEEDS
    timeout_s = "0.3"

    def start(self, lab: Lab) -> None:
        self.server = start_gunicorn(lab, SLOW)

    def traffic(self, lab: Lab) -> Truth:
        words = ("--at-once", "4", "--keep", "--timeout", self.timeout_s)
        said = lab.python("client", "http_client", f"http://{self.server}", "120", *words)
        calls = left_by_client(logs.client_calls(said, self.server))
        logged = logs.split_by_tabs(web_servers.gunicorn_log_file(lab, "app"))
        answered = [call for call in calls if not call.abandoned]
        logs.with_server_times(answered, {target: int(took_us) * 1_000 for target, took_us, *_ in logged}, 1_000)
        truth = Truth(calls=calls, names={self.server: r"gunicorn|app:8000|.*8000"})
        self.note_fault(truth)
        return truth

    def note_fault(self, truth: Truth) -> None:
        """What is wrong in this run."""
        truth.fault = Fault("client_gave_up at app", ("client_gave_up",), ("app", "client"))

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        if truth.fault is None:
            return []
        words = next((row["text"] for row in said.findings if row["kind"] == "client_gave_up"), "nothing")
        return [Verdict("the client's limit", "about 300 ms", words, "each after about 30" in words)]


@scenario
class PatientClient(ClientTimeout):
    """The same server; clients that wait, and one that sends its body slowly."""

    name = "patient-client"
    words = "the same; clients that wait, and one that takes 2 s to send its body"
    timeout_s = "60"

    def traffic(self, lab: Lab) -> Truth:
        body = lab.file("body", "b" * 100_000)
        argv = ("curl", "-s", "-o", "/dev/null", "--limit-rate", "50k", "-T", str(body), "-X", "POST")
        slow = lab.begin("client", *argv, "-H", "Expect:", f"http://{self.server}/slow?n=0")
        truth = super().traffic(lab)
        rest_of(slow)
        truth.only = ("findings", "failed", "abandoned", "packets", "words", "products")  # curl logs no times here
        return truth

    def note_fault(self, truth: Truth) -> None:
        """Nothing."""


@scenario
class Truncated(Scenario):
    """20 requests through nginx; the program fails in the middle of every second answer."""

    name = "nginx-truncated"
    words = "nginx before gunicorn, whose program fails in the middle of every 2nd answer"
    hosts, needs = BEHIND_NGINX, (*NEEDS, ("nginx", "nginx-light"))
    program, http_version = BROKEN, "1.1"

    def start(self, lab: Lab) -> None:
        app = start_gunicorn(lab, self.program)
        version = f'proxy_http_version {self.http_version}; proxy_set_header Connection "";'
        start_nginx(lab, f"location / {{ proxy_pass http://{app}; {version} }}")

    def traffic(self, lab: Lab) -> Truth:
        web = f"{lab.address('web')}:80"
        calls = logs.client_calls(lab.python("client", "http_client", f"http://{web}", "20", "--pause", "0.05"), web)
        truth = Truth(calls=calls)
        self.note_fault(truth)
        return truth

    def note_fault(self, truth: Truth) -> None:
        """What is wrong in this run."""
        truth.fault = Fault("truncated_response of app", ("truncated_response",), ("app", "client", "web"))
        truth.only = ("first finding", "findings", "failed", "packets", "words", "products")  # no times of a broken one


@scenario
class WithoutLength(Truncated):
    """The same, but whole answers of no promised length, which end as their connection does."""

    name = "nginx-without-length"
    words = "the same; whole answers without Content-Length, ended by closing"
    program, http_version = WITHOUT_LENGTH, "1.0"

    def note_fault(self, truth: Truth) -> None:
        """Nothing."""


@scenario
class WorkerKilled(Scenario):
    """60 requests of 6 clients; gunicorn's only worker is killed in the middle of six of them."""

    name = "gunicorn-killed"
    words = "gunicorn, its worker killed in the middle of requests; 6 clients"
    hosts, needs = HOSTS, NEEDS

    def start(self, lab: Lab) -> None:
        self.server = start_gunicorn(lab, STEADY)

    def traffic(self, lab: Lab) -> Truth:
        words = ("--at-once", "6", "--keep", "--pause", "0.01")
        load = lab.begin_python("client", "http_client", f"http://{self.server}", "60", *words)
        time.sleep(2.0)
        self.inject(lab)
        calls = logs.client_calls(rest_of(load), self.server)
        return self.truth(calls)

    def inject(self, lab: Lab) -> None:
        """The fault."""
        master, *workers = sorted(lab.pids("app", "wsgi:application"))
        assert master
        for pid in workers:
            os.kill(pid, signal.SIGKILL)

    def truth(self, calls: list[Call]) -> Truth:
        """What is known then."""
        fault = Fault("server_died at app", ("server_died",), ("app",))
        only = ("first finding", "findings", "failed", "abandoned", "packets", "words", "products", "requests")
        return Truth(calls=calls, fault=fault, only=only)


@scenario
class ClientLeaves(WorkerKilled):
    """The same; it is the clients that are killed in the middle of their requests, and others come."""

    name = "client-leaves"
    words = "the same; the 6 clients killed in the middle, others come after"

    def traffic(self, lab: Lab) -> Truth:
        words = ("--at-once", "6", "--keep", "--pause", "0.01")
        leaving = lab.begin_python("client", "http_client", f"http://{self.server}", "600", *words)
        time.sleep(2.0)
        for pid in lab.pids("client", "http_client"):
            os.kill(pid, signal.SIGKILL)
        leaving.communicate()
        said = lab.python("client", "http_client", f"http://{self.server}", "20", "--at-once", "4", "--keep")
        # What was asked when the first clients were killed is in no log.
        only = ("findings", "failed", "packets", "words", "products")
        return Truth(calls=logs.client_calls(said, self.server), only=only)


@scenario
class LoadGeneratorEnds(Scenario):
    """ab for 1.5 s, which leaves what it has asked when its time is over."""

    name = "ab-ends"
    words = "gunicorn; ab with a time limit, which leaves 4 requests at its end"
    hosts, needs = HOSTS, (*NEEDS, ("ab", "apache2-utils"))

    def start(self, lab: Lab) -> None:
        self.server = start_gunicorn(lab, STEADY)

    def traffic(self, lab: Lab) -> Truth:
        lab.run("client", "ab", "-q", "-t", "2", "-c", "4", "-k", f"http://{self.server}/?n=3")
        return Truth(only=("findings", "packets", "words", "products"))


@scenario
class RedisTimeout(Scenario):
    """A client with a timeout of 0.3 s; three times Redis does nothing for 0.8 s."""

    name = "redis-timeout"
    words = "Redis; a client with a timeout of 0.3 s, Redis asleep three times"
    hosts = addresses(client="10.68.0.10", cache="10.68.0.20")
    needs = (("redis-server", "redis-server"), ("redis-cli", "redis-tools"))
    timeout_s, left = 0.3, 3

    def start(self, lab: Lab) -> None:
        words = ("--protected-mode", "no", "--save", "", "--enable-debug-command", "yes")
        lab.start("cache", "redis-server", "--bind", lab.address("cache"), *words, port=6379)

    def traffic(self, lab: Lab) -> Truth:
        script = lab.file("asker.py", ASKER.format(address=lab.address("cache"), timeout=self.timeout_s))
        asking = lab.begin("client", sys.executable, str(script))
        for _ in range(3):
            time.sleep(1.3)
            lab.run("cache", "redis-cli", "-h", lab.address("cache"), "debug", "sleep", "0.8")
        left = int(rest_of(asking))
        fault = Fault("client_gave_up at cache", ("client_gave_up",), ("cache", "client")) if self.left else None
        return Truth(
            fault=fault, more={"left": left}, only=("first finding", "findings", "packets", "words", "products")
        )

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        left = said.exchanges.filter(pl.col("outcome") == "abandoned").height
        return [Verdict("abandoned requests", f"{truth.more['left']:g}", str(left), left == truth.more["left"])]


@scenario
class RedisPatient(RedisTimeout):
    """The same with a client that waits, and that closes its connection after every 50th answer."""

    name = "redis-patient"
    words = "the same; a client that waits"
    timeout_s, left = 30.0, 0


@scenario
class PostgreSQLKilled(Scenario):
    """All of PostgreSQL's processes killed, while 6 sessions wait for statements of 0.2 s."""

    name = "pg-killed"
    words = "PostgreSQL, all its processes killed while 6 sessions wait"
    hosts, needs = PostgreSQL.hosts, PostgreSQL.needs

    def start(self, lab: Lab) -> None:
        start_postgresql(lab, "db")

    def traffic(self, lab: Lab) -> Truth:
        sleeping = lab.file("sleep.sql", "\\set ms random(150, 350)\nSELECT pg_sleep(:ms / 1000.0);\n")
        where = ("env", "PGSSLMODE=disable", "pgbench", "-h", lab.address("db"), "-U", "postgres", "-n")
        asking = lab.begin("client", *where, "-c", "6", "-j", "6", "-T", "30", "-f", str(sleeping), "postgres")
        time.sleep(2.5)
        for pid in lab.pids("db", "postgres"):
            if Path(f"/proc/{pid}/comm").read_text("utf-8").strip() == "postgres":
                os.kill(pid, signal.SIGKILL)
        asking.communicate()
        fault = Fault("server_died at db", ("server_died",), ("db",))
        return Truth(fault=fault, only=("first finding", "findings", "packets", "words", "products"))


@scenario
class Failures(Scenario):
    """40 curls: 20 before nginx runs, then 16 that it answers and 4 that it closes without an answer (444)."""

    name = "nginx-failures"
    words = "nginx that starts after 20 of 40 curls, and closes 4 without an answer (444)"
    hosts = addresses(client="10.68.0.10", web="10.68.0.20")
    needs = (("nginx", "nginx-light"), ("curl", "curl"))
    refused, closed, answered = 20, 4, 16

    def traffic(self, lab: Lab) -> Truth:
        web = lab.address("web")
        self._ask(lab, f"http://{web}/early?n=", self.refused)
        start_nginx(lab, 'location / { return 200 "hello"; } location /drop { return 444; }')
        for number in range(self.answered):
            self._ask(lab, f"http://{web}/item?n=", 1, number)
            if number % 4 == 3 and self.closed:
                self._ask(lab, f"http://{web}/drop?n=", 1, number)
        hosts = ("web", "client")
        kinds = ("connection_refused", "unanswered_request")
        fault = Fault("refused and unanswered at web", kinds, hosts) if self.refused else None
        return Truth(fault=fault, only=("first finding", "findings", "packets", "words", "products", "headline"))

    def _ask(self, lab: Lab, url: str, count: int, first: int = 0) -> None:
        words = f"for n in $(seq {first} {first + count - 1}); do curl -s -o /dev/null {url}$n; done; true"
        lab.run("client", "sh", "-c", words)

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        failed, total = self.refused + self.closed, self.refused + self.closed + self.answered
        true = f"{failed} of {total} attempts failed: {self.refused} connections were refused, "
        true += f"{self.closed} requests got no answer; the {self.answered} others took"
        sentence = " ".join(said.report["story"]["sentence"].split())
        return [Verdict("headline: failures", true, sentence[:160], sentence.startswith(true))]


@scenario
class NoFailures(Failures):
    """40 curls that nginx answers, one in four with 404: an answer, and no failure."""

    name = "nginx-no-failures"
    words = "nginx, 40 curls; every 4th is a 404"
    refused, closed, answered = 0, 0, 40

    def traffic(self, lab: Lab) -> Truth:
        start_nginx(lab, 'location / { return 200 "hello"; } location /no { return 404; }')
        for number in range(self.answered):
            self._ask(lab, f"http://{lab.address('web')}/{'no' if number % 4 == 3 else 'item'}?n=", 1, number)
        return Truth(only=("findings", "packets", "words", "products", "headline"))

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        sentence = said.report["story"]["sentence"]
        right = "failed" not in sentence and sentence.startswith("40 requests took")
        return [Verdict("headline: failures", "none: 40 requests took …", sentence[:80], right)]
