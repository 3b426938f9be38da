"""MongoDB's wire protocol: FerretDB, a server that speaks it before SQLite, asked by PyPI's pymongo.

Truth: pymongo's own monitoring of commands (name, database, number, duration, error), of connections and of heartbeats.
FerretDB is no package of Debian's; Go builds version 1. pymongo needs an interpreter that has it: this one, or the one
that the environment variable REAL_SYSTEMS_PYTHON names.
"""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import polars as pl

from benchmarks.real_systems import logs
from benchmarks.real_systems.interpreter import python_with
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Call, Truth
from benchmarks.real_systems.verdict import Verdict

PORT, APP_PORT = 27017, 8000
MESSAGE, REQUEST = 11, 2
"""Kind of the rows of messages, and the flag of those that ask (`tracer/core/protocols/src/mongodb.rs`)."""
NEEDS = (("ferretdb", "build: FerretDB 1.24 with Go"), ("python:pymongo", "pymongo"))
MONITOR = r"""
import contextvars, json, sys, threading, time
from pymongo import monitoring
CAUSE = contextvars.ContextVar("cause", default="")
OF_COLLECTIONS = ("find insert update delete aggregate count distinct findAndModify createIndexes create drop "
                  "killCursors collStats collMod").split()
LOCK = threading.Lock()
def note(**what):
    with LOCK:
        LOG.write(json.dumps(dict(at_ns=time.time_ns(), **what)) + "\n")
        LOG.flush()
OPEN = {}
def note_command(_, event):
    name, command = event.command_name, event.command
    of = {"getMore": "collection"}.get(name, name if name in OF_COLLECTIONS else "")
    collection = command.get(of, "")
    target = event.database_name + ("." + collection if isinstance(collection, str) and collection else "")
    concern = command.get("writeConcern") or {}
    waits = name == "getMore" and command["collection"] == "news"
    OPEN[event.request_id] = dict(began_ns=time.time_ns(), name=name, target=target, cause=CAUSE.get(),
                                  is_bare=concern.get("w") == 0, waits=waits)
def note_end(_, event):
    answer = event.reply if hasattr(event, "reply") else event.failure
    error = (answer.get("writeErrors") or [answer])[0]
    known = OPEN.pop(event.request_id)
    took_ns = event.duration_micros * 1000
    note(kind="command", number=event.request_id, took_ns=took_ns, code=str(error.get("code", "")), **known)
def listener(kind, **methods):
    named = {name: methods.get(name, lambda *_: None) for name in dir(kind) if name[0] != "_"}
    return type("Listener", (kind,), named)()
def listeners():
    return [
        listener(monitoring.CommandListener, started=note_command, succeeded=note_end, failed=note_end),
        listener(monitoring.ConnectionPoolListener, connection_ready=lambda *_: note(kind="connection")),
        listener(monitoring.ServerHeartbeatListener, succeeded=lambda *_: note(kind="heartbeat")),
    ]
"""
DRIVER = (
    MONITOR
    + r"""
import asyncio, random
import pymongo
from pymongo.errors import PyMongoError
def expect_error(what, *args, **more):
    try:
        what(*args, **more)
    except PyMongoError:
        return
    raise AssertionError(what)
def work(client, number):
    own = client.shop[f"orders_{number}"]
    for n in range(20):
        own.insert_one({"_id": n, "name": f"order {n}", "items": [{"n": m, "price": 1.5} for m in range(n)]})
        list(own.find({"_id": n, "name": "x" * 50 * n}))
        own.update_one({"_id": n}, {"$set": {"name": "y"}})
        own.count_documents({"_id": {"$gt": 3}})
        time.sleep(0.01 + 0.003 * number)
    own.insert_many([{"_id": 1000 + n, "text": "z" * 700} for n in range(600)])
    list(own.find({}, batch_size=50))
    list(own.aggregate([{"$match": {"_id": {"$gt": 1000}}}, {"$group": {"_id": None, "count": {"$sum": 1}}}]))
    own.delete_many({"_id": {"$lt": 5}})
    expect_error(own.insert_one, {"_id": 7})
    database = client[f"shop_{number}"]
    expect_error(database.command, "nosuchcommand")
    expect_error(database.command, "collMod", "none")
    expect_error(lambda: list(own.find({"$nosuch": 1})))
    own.create_index("name")
    own.insert_one({"_id": "large", "text": "w" * 300_000})
    assert len(own.find_one({"_id": "large"})["text"]) == 300_000
    database.command("ping")
def insert_bare(address):
    # FerretDB answers all the same, which pymongo does not expect: so on a connection of its own.
    with pymongo.MongoClient(address, 27017, event_listeners=listeners(), w=0) as client:
        for n in range(6):
            client.shop.bare.insert_one({"_id": n})
            time.sleep(0.01)
async def work_async(address):
    client = pymongo.AsyncMongoClient(address, 27017, event_listeners=listeners(), maxPoolSize=4)
    async def one(number):
        own = client.shop[f"async_{number}"]
        for n in range(10):
            await own.insert_one({"_id": n})
            await own.find_one({"_id": n})
    await asyncio.gather(*(one(number) for number in range(4)))
    await client.close()
def wait_for_news(client, address):
    client.shop.create_collection("news", capped=True, size=1 << 20)
    client.shop.news.insert_one({"n": -1})
    def publish():
        for n in range(8):
            time.sleep(0.3)
            client.shop.news.insert_one({"n": n})
    thread = threading.Thread(target=publish)
    thread.start()
    with pymongo.MongoClient(address, 27017, event_listeners=listeners()) as other:
        for await_ms, count in ((400, 5), (None, 9)):
            cursor = other.shop.news.find({}, cursor_type=pymongo.CursorType.TAILABLE_AWAIT, batch_size=1)
            if await_ms:
                cursor.max_await_time_ms(await_ms)
            while count:
                assert cursor.alive
                count -= next(cursor, None) is not None
            cursor.close()
    thread.join()
LOG = open(sys.argv[2], "w")
sys.setswitchinterval(0.0002)  # else a thread's answer waits for the others' work
with pymongo.MongoClient(sys.argv[1], 27017, event_listeners=listeners(), maxPoolSize=5) as client:
    client.shop.command("ping")
    threads = [threading.Thread(target=work, args=(client, number)) for number in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    asyncio.run(work_async(sys.argv[1]))
    insert_bare(sys.argv[1])
    wait_for_news(client, sys.argv[1])
"""
)
APP = (
    MONITOR
    + r"""
import random
import pymongo
from flask import Flask, request
LOG = open(sys.argv[3], "w")
sys.setswitchinterval(0.0002)
client = pymongo.MongoClient(sys.argv[2], 27017, event_listeners=listeners(), maxPoolSize=4)
app = Flask(__name__)
@app.route("/")
@app.route("/<path:path>")
def answer(path=""):
    number = int(request.args["n"])
    CAUSE.set(str(number))
    own = client.shop.orders
    own.find_one({"_id": number})
    if number % 3 == 0:
        own.update_one({"_id": number}, {"$set": {"seen": True}}, upsert=True)
    if number % 5 == 0:
        list(own.aggregate([{"$match": {"_id": {"$lt": number}}}, {"$count": "n"}]))
    time.sleep(0.002 + 0.001 * (number % 7))
    own.insert_one({"_id": f"visit {number} {time.time_ns()}"})
    return "x" * 500
for n in range(50):
    client.shop.orders.insert_one({"_id": n + 1000})
from werkzeug.serving import WSGIRequestHandler
WSGIRequestHandler.protocol_version = "HTTP/1.1"
app.run(sys.argv[1], 8000, threaded=True)
"""
)


def start_ferretdb(lab: Lab, host: str) -> None:
    """FerretDB before an empty SQLite."""
    data = lab.folder / "ferretdb"
    data.mkdir()
    words = ("--handler=sqlite", f"--sqlite-url=file:{data}/", f"--state-dir={data}", "--telemetry=disable")
    address = f"{lab.address(host)}:{PORT}"
    lab.start(host, "ferretdb", *words, f"--listen-addr={address}", "--debug-addr=-", port=PORT)


def commands(lines: Iterable[dict[str, Any]], server: str) -> list[Call]:
    """What pymongo's monitoring says, but what wants no answer or waits for news."""
    calls = []
    for number, line in enumerate(lines):
        call = Call(f"pymongo {number}", server, started_ns=line["at_ns"], parent="")
        if line["kind"] == "command":
            if line["is_bare"] or line["waits"]:
                continue
            call.started_ns, call.client_ns = line["began_ns"], line["took_ns"]
            if line["target"] != "admin":  # as handshakes, of which nothing more is said
                call.target, call.name, call.result = line["target"], f"{line['name']} {line['target']}", line["code"]
            call.parent = f"client {line['cause']}" if line["cause"] else ""
        elif line["kind"] not in ("connection", "heartbeat"):
            continue
        calls.append(call)
    return calls


class _Ferret(Scenario):
    """A scenario with FerretDB on `db`."""

    def lines(self, lab: Lab) -> list[dict[str, Any]]:
        """What the program noted."""
        return [json.loads(text) for text in (lab.folder / "pymongo.log").open()]

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        """Numbers of requests with their names, as pymongo gave them."""
        rows = said.table("messages").filter(pl.col("head_kind") == MESSAGE, pl.col("head_flags") & REQUEST > 0)
        shown = {f"number {row['stream_id']} {row['method']} {row['target']}" for row in rows.iter_rows(named=True)}
        wanted = {name for name in truth.more if name.startswith("number ")}
        missing = sorted(wanted - shown)
        streams = Counter(said.table("exchanges").filter("is_stream")["method"].cast(pl.String))
        verdict = Verdict("commands by their numbers", str(len(wanted)), "; ".join(missing[:3]) or "all", not missing)
        others = {name: int(count) for name, count in truth.more.items() if name not in wanted}
        counts = {name.removeprefix("no request "): count for name, count in others.items()}
        return [
            verdict,
            *(
                Verdict(f"{name} that is no request", str(count), str(streams[name]), streams[name] == count)
                for name, count in sorted(counts.items())
            ),
        ]


def more_of(lines: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Numbers of commands with their names, and how many commands are no requests."""
    own = [line for line in lines if line["kind"] == "command"]
    found: Counter[str] = Counter(f"number {line['number']} {line['name']} {line['target']}" for line in own)
    found.update(f"no request {line['name']}" for line in own if line["is_bare"] or line["waits"])
    return dict(found)


@scenario
class MongoDBDriver(_Ferret):
    """All that a driver does: a pool of three threads, an event loop, errors, large documents, waiting for news."""

    name = "mongodb-driver"
    words = "FerretDB; pymongo: 3 threads and an event loop, errors, documents of 300 kB, `w: 0`, a tailable cursor"
    hosts = addresses(client="10.68.0.10", db="10.68.0.20")
    needs = NEEDS

    def start(self, lab: Lab) -> None:
        start_ferretdb(lab, "db")

    def traffic(self, lab: Lab) -> Truth:
        program = str(lab.file("driver.py", DRIVER))
        log = str(lab.folder / "pymongo.log")
        lab.run("client", python_with("pymongo"), program, lab.address("db"), log)
        lines, server = self.lines(lab), f"{lab.address('db')}:{PORT}"
        return Truth(calls=commands(lines, server), names={server: rf"mongodb|db:{PORT}"}, more=more_of(lines))


@scenario
class MongoDBBehindFlask(_Ferret):
    """An application whose requests ask the database."""

    name = "mongodb-flask"
    words = "Flask with pymongo, a pool of 4 connections to FerretDB; 150 requests, 3 at once"
    hosts = addresses(client="10.68.0.10", app="10.68.0.20", db="10.68.0.30")
    needs = (*NEEDS, ("python:flask", "flask"))

    def start(self, lab: Lab) -> None:
        start_ferretdb(lab, "db")
        program, log = str(lab.file("app.py", APP)), str(lab.folder / "pymongo.log")
        words = (lab.address("app"), lab.address("db"), log)
        lab.start("app", python_with("flask"), program, *words, port=APP_PORT, name="flask")
        self.ask(lab, 10_000, 12)

    def ask(self, lab: Lab, first: int, count: int) -> str:
        """The load."""
        url = f"http://{lab.address('app')}:{APP_PORT}"
        return lab.python("client", "http_client", url, str(count), "--first", str(first), "--at-once", "3")

    def traffic(self, lab: Lab) -> Truth:
        before = len(self.lines(lab))
        app, server = f"{lab.address('app')}:{APP_PORT}", f"{lab.address('db')}:{PORT}"
        calls = logs.client_calls(self.ask(lab, 0, 150), app)
        lines = self.lines(lab)[before:]
        names = {app: rf"werkzeug|http|app:{APP_PORT}", server: rf"mongodb|db:{PORT}"}
        return Truth(calls=[*calls, *commands(lines, server)], names=names, more=more_of(lines))
