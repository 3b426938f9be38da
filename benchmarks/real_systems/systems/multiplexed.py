"""A gateway that asks a store over TLS, 8 requests at once: over one connection of HTTP/2, or a pool of HTTP/1.1's.

hypercorn (PyPI) serves both; the gateway asks with httpx, which either puts all requests on one connection or keeps one
for each that runs at a time. That is all the difference, and from outside it has to show: the one connection
is a stream; the turns of those of the pool are requests, and have a parent. With the gateway's key log the streams of
the one connection are requests as well, and their ids show their parents.

Truth: the client's log, the gateway's, the store's. Needs an interpreter that has hypercorn, h2 and httpx: this one, or
the one that the environment variable REAL_SYSTEMS_PYTHON names.
"""

import json
from pathlib import Path
from typing import ClassVar

from benchmarks.real_systems import logs
from benchmarks.real_systems.interpreter import python_with
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Call, Truth
from benchmarks.real_systems.verdict import Verdict

GATE_PORT, STORE_PORT, KEY_LOG = 8000, 8443, "keys.log"
SERVER = """
import asyncio, json, os, random, sys, time, uuid
import httpx
from hypercorn.asyncio import serve
from hypercorn.config import Config
settings = json.loads(sys.argv[1])
LOG = os.open(settings["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
asking = httpx.AsyncClient(verify=False, http2=settings["http2"], timeout=30) if settings["ask"] else None
async def app(scope, receive, send):
    assert scope["type"] == "http"
    began, judge = time.time_ns(), dict(scope["headers"])[b"x-judge"].decode()
    await asyncio.sleep(random.uniform(*settings["work_ms"]) / 1e3)
    body, took_ns = b"x" * random.randrange(200, 20_000), 0
    ids = {"x-request-id": uuid.uuid4().hex} if settings["ids"] else {}
    if asking:
        asked = time.time_ns()
        body = (await asking.get(settings["ask"], headers={"x-judge": judge} | ids)).content
        took_ns = time.time_ns() - asked
    words = dict(n=int(judge), port=scope["client"][1], began_ns=began, ended_ns=time.time_ns(), took_ns=took_ns)
    os.write(LOG, (json.dumps(words) + chr(10)).encode())
    fields = {"content-length": str(len(body))} | (ids if asking else {})
    headers = [(name.encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
config = Config()
config.bind = [settings["bind"]]
config.certfile, config.keyfile = settings["cert"], settings["key"]
config.keep_alive_timeout = 60
asyncio.run(serve(app, config))
"""


class _Gateway(Scenario):
    """240 requests of 8 clients."""

    hosts = addresses(client="10.68.0.10", gate="10.68.0.20", store="10.68.0.30")
    needs: ClassVar[tuple[tuple[str, str], ...]] = (
        ("openssl", "openssl"), *((f"python:{name}", name) for name in ("hypercorn", "h2", "httpx")),
    )  # fmt: skip
    count, at_once = 240, 8
    http2: ClassVar[bool]
    has_keys: ClassVar[bool] = False

    def start(self, lab: Lab) -> None:
        key, cert = str(lab.folder / "tls.key"), str(lab.folder / "tls.crt")
        made = ("-keyout", key, "-out", cert, "-subj", "/CN=store", "-days", "2")
        lab.run("store", "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *made)
        ask = f"https://{lab.address('store')}:{STORE_PORT}/part"
        self._serve(lab, "store", STORE_PORT, {"cert": cert, "key": key, "work_ms": (5, 20), "ask": ""})
        self._serve(lab, "gate", GATE_PORT, {"cert": None, "key": None, "work_ms": (0.5, 2), "ask": ask})
        if not self.has_keys:  # which open what is captured from its beginning on
            self._ask(lab, 10_000, self.at_once)  # so that connections are open
        for host in ("gate", "store"):
            (lab.folder / f"{host}.log").write_text("")

    def _serve(self, lab: Lab, host: str, port: int, settings: dict[str, object]) -> None:
        settings |= {"bind": f"{lab.address(host)}:{port}", "log": str(lab.folder / f"{host}.log")}
        settings |= {"http2": self.http2, "ids": self.has_keys}
        program = str(lab.file("server.py", SERVER))
        logged = ("env", f"SSLKEYLOGFILE={lab.folder / KEY_LOG}") if self.has_keys else ()
        command = (*logged, python_with("hypercorn"), program, json.dumps(settings))
        lab.start(host, *command, port=port, name="hypercorn")

    def _ask(self, lab: Lab, first: int, count: int) -> str:
        words = ("--first", str(first), "--at-once", str(self.at_once), "--keep", "--pause", "0.002")
        return lab.python("client", "http_client", f"http://{lab.address('gate')}:{GATE_PORT}", str(count), *words)

    def traffic(self, lab: Lab) -> Truth:
        gate, store = f"{lab.address('gate')}:{GATE_PORT}", f"{lab.address('store')}:{STORE_PORT}"
        calls = logs.client_calls(self._ask(lab, 0, self.count), gate)
        served = {f"client {line['n']}": line for line in logs.lines_of(lab.folder / "gate.log")}
        for call in calls:
            call.server_ns = served[call.id]["ended_ns"] - served[call.id]["began_ns"]
        inner = [self._inner(line, store, served) for line in logs.lines_of(lab.folder / "store.log")]
        assert len(inner) == len(calls)
        named = {gate: rf"gate:{GATE_PORT}|hypercorn.*", store: rf"store:{STORE_PORT}|.*tls.*|hypercorn.*"}
        return self.refine(Truth(calls=calls, names=named), inner)

    def _inner(self, line: dict[str, int], store: str, served: dict[str, dict[str, int]]) -> Call:
        parent = f"client {line['n']}"
        call = Call(f"part {line['n']}", store, "", line["port"], line["began_ns"], parent=parent)
        call.server_ns, call.client_ns = line["ended_ns"] - line["began_ns"], served[parent]["took_ns"]
        return call

    def refine(self, truth: Truth, inner: list[Call]) -> Truth:
        """What is true of this one alone."""
        raise NotImplementedError


@scenario
class Multiplexed(_Gateway):
    """All of the gateway's calls on one connection."""

    name = "multiplexed"
    words = "hypercorn as a gateway asks another over one TLS connection of HTTP/2 (httpx), 8 clients"
    http2 = True

    def refine(self, truth: Truth, inner: list[Call]) -> Truth:
        truth.names.popitem()  # of turns nobody counts the requests
        return truth

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        gate = {call.server for call in truth.calls}
        requests = sum(row["server"] not in gate for row in said.exchanges.to_dicts())
        streams = [row for row in said.streams if row["server"] not in gate]
        words = f"{requests}, and {len(streams)} streams"
        right = requests == 0 and len(streams) == 1
        return [Verdict("requests on a multiplexed connection", "none, and 1 stream", words, right)]


@scenario
class Pooled(_Gateway):
    """The same over a pool of ordinary connections, whose turns are requests."""

    name = "multiplexed-twin"
    words = "the same, over a pool of HTTP/1.1 connections in TLS"
    http2 = False

    def refine(self, truth: Truth, inner: list[Call]) -> Truth:
        truth.calls += inner
        return truth


@scenario
class MultiplexedKeys(_Gateway):
    """All of the gateway's calls on one connection, whose secrets the gateway logs."""

    name = "multiplexed-keys"
    words = "as `multiplexed`; the gateway's key log opens its connection, and it passes an id on"
    http2, has_keys = True, True
    by = ("tcpdump",)

    def refine(self, truth: Truth, inner: list[Call]) -> Truth:
        truth.calls += inner
        truth.links_right = 0.99
        return truth

    def captures(self, folder: Path, by: str) -> list[str]:
        return ["--keys", str(folder / "lab" / KEY_LOG), *super().captures(folder, by)]
