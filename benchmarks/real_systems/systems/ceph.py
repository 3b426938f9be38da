"""Ceph: a monitor and three OSDs, each on a host of its own, and a client of librados.

Pool `data` has two replicas, `coded` is erasure-coded (2 + 1). Four threads of the client write, read and delete
objects, and read some that do not exist. The captures begin when all connections are open, as captures of a cluster do.

Truth: what the client's threads note of each operation; and what each OSD's messenger logs (`debug ms = 1`) of every
message that it dispatches or sends, with its time, the tids of requests and answers, and the operation's name.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.real_systems.interpreter import python_with
from benchmarks.real_systems.lab import Lab, rest_of
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Truth
from benchmarks.real_systems.verdict import Verdict, in_ms, within
from testkit.ceph_cluster import MON, Cluster, start_daemons

OSDS = ("osd0", "osd1", "osd2")
THREADS, ROUNDS = 4, 25
Row = dict[str, Any]
CLIENT = """
import json, os, sys, threading, time
import rados
LOCK = threading.Lock()
def note(pool, what, name, began, error):
    line = dict(pool=pool, what=what, object=name, began_ns=began, ended_ns=time.time_ns(), error=error)
    with LOCK:
        print(json.dumps(line), flush=True)
def do(pool, ioctx, what, name, ask):
    began, error = time.time_ns(), 0
    try:
        ask()
    except rados.Error as failed:
        error = failed.errno
    note(pool, what, name, began, error)
def set_omap(ioctx, name):
    with rados.WriteOpCtx() as op:
        ioctx.set_omap(op, ("key",), (b"value",))
        ioctx.operate_write_op(op, name)
def work(cluster, number, rounds):
    with cluster.open_ioctx("data") as data, cluster.open_ioctx("coded") as coded:
        for turn in range(rounds):
            name = f"rbd_data.{number:x}f{turn:04x}"
            do("data", data, "writefull", name, lambda: data.write_full(name, b"x" * (1000 + 500 * turn)))
            do("data", data, "write", name, lambda: data.write(name, b"y" * 4096, 512))
            do("data", data, "read", name, lambda: data.read(name, 65536))
            do("data", data, "stat", name, lambda: data.stat(name))
            do("data", data, "omap-set-vals", name, lambda: set_omap(data, name))
            do("data", data, "read", name + ".none", lambda: data.read(name + ".none"))
            do("coded", coded, "writefull", name, lambda: coded.write_full(name, b"z" * 20000))
            do("coded", coded, "read", name, lambda: coded.read(name, 20000))
            do("data", data, "delete", name, lambda: data.remove_object(name))
def all_work(cluster, threads, rounds):
    all = [threading.Thread(target=work, args=(cluster, n, rounds)) for n in range(threads)]
    [thread.start() for thread in all]
    [thread.join() for thread in all]
conf, go, threads, rounds = sys.argv[1:]
with rados.Rados(conffile=conf, name="client.admin") as cluster:
    all_work(cluster, int(threads), 2)
    print("ready", flush=True)
    while not os.path.exists(go):
        time.sleep(0.05)
    all_work(cluster, int(threads), int(rounds))
"""
_LINE = re.compile(
    r"(?P<at>\S+) \S+ +1 -- \S+ (?P<way>-->|<==) (?:\S+ )?(?:v2:)?(?P<peer>[\d.]+):\d+/\d+ (?:\d+ ====|--) "
    r"(?P<kind>osd_op|osd_repop|MOSDECSubOpWrite|MOSDECSubOpRead)(?P<reply>_reply|Reply)?\((?P<rest>.*)"
)
_MS_OPTIONS = "debug ms = 1\nlog coarse timestamps = false"
_METHODS = {"osd_repop": "osd_repop", "MOSDECSubOpWrite": "ec_write", "MOSDECSubOpRead": "ec_read"}
_REPLY = re.compile(r"(?P<tid>\d+) (?P<object>\S*) \[(?P<operations>[^\]]*)\] .*? = (?P<result>-?\d+)")
_ID = re.compile(r"client\.\d+\.(?P<id>\d+:\d+) (?P<pool>\d+)\.")
MOST_UNREAD = 0.02
"""Share of requests whose answers an agent may miss: it keeps frames that begin a packet, or follow such ones in it."""
_HINTS = ("set-alloc-hint",)
POOLS = {"1": "data", "2": "coded"}


@dataclass(frozen=True, slots=True)
class Logged:
    """A message in an OSD's log, when it was dispatched or sent."""

    at_ns: int
    host: str
    peer: str
    is_sent: bool
    kind: str
    is_reply: bool
    rest: str


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the client, by its OSD's log."""

    host: str
    pool: str
    tid: int
    method: str
    object: str
    result: int
    took_ns: int


@scenario
class Ceph(Scenario):
    """Operations, replicas' and shards' messages, and which is whose."""

    name = "ceph"
    words = "Ceph 16 (3 OSDs): librados with 4 threads on a replicated and an erasure-coded pool"
    hosts = addresses(client="10.68.0.10", osd0="10.68.0.31", osd1="10.68.0.32", osd2="10.68.0.33", mon="10.68.0.40")
    needs = (
        ("ceph-mon", "ceph-mon"), ("ceph-osd", "ceph-osd"), ("ceph", "ceph-common"),
        ("/usr/lib/python3/dist-packages/rados.*.so", "python3-rados"),
    )  # fmt: skip

    @contextmanager
    def lab(self, folder: Path) -> Iterator[Lab]:
        with Lab(folder, self.hosts, is_urgent=False) as lab:  # else its many threads leave tcpdump no time
            yield lab

    def start(self, lab: Lab) -> None:
        cluster = Cluster(lab.folder, lab.address("mon"), [lab.address(osd) for osd in OSDS], size=2, more=_MS_OPTIONS)
        os.environ["CEPH_CONF"] = str(cluster.conf)
        host = {f"osd.{number}": name for number, name in enumerate(OSDS)}

        def run(daemon: str, *argv: str) -> None:
            lab.run(host.get(daemon, daemon), *argv)

        def start(daemon: str, *argv: str) -> None:
            lab.start(host.get(daemon, daemon), *argv, port=cluster.mon_port if daemon == MON else None)

        start_daemons(cluster, run, start)
        profile = ("k=2", "m=1", "crush-failure-domain=osd", "plugin=jerasure")
        lab.run("mon", "ceph", "osd", "erasure-code-profile", "set", "coded", *profile)
        lab.run("mon", "ceph", "osd", "pool", "create", "data", "8")
        lab.run("mon", "ceph", "osd", "pool", "create", "coded", "8", "8", "erasure", "coded")
        words = (str(cluster.conf), str(lab.folder / "go"), str(THREADS), str(ROUNDS))
        python = python_with("rados") or "/usr/bin/python3"
        self.client = lab.begin("client", python, str(lab.file("client.py", CLIENT)), *words)
        assert self.client.stdout is not None
        next(line for line in self.client.stdout if line == "ready\n")

    def traffic(self, lab: Lab) -> Truth:
        lab.file("go")
        lab.file("client.log", rest_of(self.client))
        lab.run("client", "ceph", "osd", "stat")
        osds = {f"{lab.address(osd)}:{port}": r"ceph-osd" for osd in OSDS for port in (6800, 6801)}
        return Truth(names=osds, products=("ceph",), lost=None, only=("words like", "packets that"))

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        folder = said.trace.parent.parent / "lab"
        client = [json.loads(line) for line in _lines(folder / "client.log")]
        began_ns = min(line["began_ns"] for line in client)
        logged = [one for one in read_logs(folder, self.hosts) if one.at_ns >= began_ns]
        rows = [row for row in said.exchanges.to_dicts() if row["protocol"] == "ceph"]
        asked = [row for row in rows if _is_clients(row)]
        unread = [row for row in said.table("exchanges").to_dicts() if row["is_stream"] and _is_clients(row)]
        unread_ids = {row["transaction_id"].split(" ")[0] for row in unread}
        operations = [one for one in operations_of(logged) if f"0:{one.tid}" not in unread_ids]
        return [
            *_counts(client, asked, unread, rows, logged, 1 - MOST_UNREAD if "agent" in said.trace.parent.name else 1),
            *_names(operations, asked),
            _services(rows),
            _parents([row for row in rows if (row["transaction_id"] or "").split(" ")[0] not in unread_ids]),
            *_durations(client, operations, asked),
            _hidden_streams(said),
        ]


def _is_clients(row: Row) -> bool:
    return row["client_host"] == "client" and (row["method"] or "").startswith("osd ")


def _counts(
    client: list[Row], asked: list[Row], unread: list[Row], rows: list[Row], logged: list[Logged], least: float
) -> Iterator[Verdict]:
    true = Counter(line["what"] for line in client)
    found = Counter(row["method"][4:] for row in asked + unread)
    right = true == found and len(unread) <= (1 - least) * len(client)
    words = f"; of these {len(unread)} without an answer, since frames are missing" if unread else ""
    yield Verdict("operations by the client's count", _words_of(true), _words_of(found) + words, right)
    for kind, method in _METHODS.items():
        sent = Counter((one.host, one.peer) for one in logged if one.kind == kind and _is_asked(one))
        own = [row for row in rows if row["method"] == method]
        seen = Counter((row["client_host"], row["server_host"]) for row in own)
        right = seen <= sent and len(own) >= least * sent.total() > 0
        yield Verdict(f"{method}, by sender and receiver", _words_of(sent), _words_of(seen), right)
    both = [row for row in rows if row["method"] in _METHODS.values()] + asked
    answered = sum(row["complete"] and row["response_bytes"] is not None for row in both)
    yield Verdict("requests with their answer", str(len(both)), str(answered), answered == len(both))


def _is_asked(one: Logged) -> bool:
    """Whether an OSD sent a request, not one to itself, which no packet carries."""
    return one.is_sent and not one.is_reply and one.host != one.peer


def _names(operations: list[Operation], asked: list[Row]) -> Iterator[Verdict]:
    pairs = list(_pairs(operations, asked))
    named = sum(row["method"] == f"osd {one.method}" for one, row in pairs)
    yield Verdict("names of operations, as their OSD's log", str(len(operations)), str(named), named == len(operations))
    objects = sum(row["target"].split("/", 1)[1] == one.object for one, row in pairs)
    yield Verdict("names of objects", str(len(operations)), str(objects), objects == len(operations))
    failed = Counter(one.result for one in operations if one.result)
    seen = Counter(-row["result_code"] for row in asked if row["result_code"])
    classes = {row["status_class"] for row in asked if row["result_code"]}
    right = failed == seen and classes == {"client_error"}
    yield Verdict(
        "results, and their class", f"{_words_of(failed)}: client_error", f"{_words_of(seen)}: {classes}", right
    )


def _services(rows: list[Row]) -> Verdict:
    """What the OSDs are called, also those that are asked at the end that opened the connection."""
    found = {row["service"] for row in rows if row["server_host"] in OSDS}
    return Verdict("service of all requests to OSDs", "ceph-osd", ", ".join(sorted(found)), found == {"ceph-osd"})


def _parents(rows: list[Row]) -> Verdict:
    """Whether the parent of each replica's message is the operation with the same id, at the host that sent it."""
    ids = {row["exchange_id"]: (row["transaction_id"], row["server_host"]) for row in rows}
    own = [row for row in rows if row["method"] in ("osd_repop", "ec_write")]
    right = sum(ids.get(row["parent_span_id"]) == (row["transaction_id"], row["client_host"]) for row in own)
    return Verdict("parents of replicas' and shards' writes", str(len(own)), str(right), right == len(own) > 0)


def _pairs(operations: list[Operation], asked: list[Row]) -> Iterator[tuple[Operation, Row]]:
    rows = {(row["server_host"], int(row["transaction_id"].split()[0].split(":")[1])): row for row in asked}
    for one in operations:
        row = rows.get((one.host, one.tid))
        if row is not None:
            yield one, row


def _durations(client: list[Row], operations: list[Operation], asked: list[Row]) -> Iterator[Verdict]:
    """Durations at both ends. What a program waits for a processor is in its own times and not on the wire, so a
    duration is right between what both ends' logs have, too."""
    calls = {(line["pool"], line["what"], line["object"]): line["ended_ns"] - line["began_ns"] for line in client}
    logged = [
        ((one.took_ns, calls.get((POOLS[one.pool], one.method, one.object), one.took_ns)), row)
        for one, row in _pairs(operations, asked)
    ]
    for where, end, measured in (("an OSD's log", 0, _server_ns), ("the client's", 1, _client_ns)):
        off = [(both, measured(row)) for both, row in logged if not within(measured(row), both)]
        exact = sum(within(measured(row), (both[end], both[end])) for both, row in logged)
        worst = f"; worst {in_ms(off[0][1])} for {in_ms(off[0][0][0])} to {in_ms(off[0][0][1])}" if off else ""
        words = f"{exact}, {len(logged) - len(off) - exact} between both ends' logs{worst}"
        yield Verdict(f"durations by {where}", f"{len(operations)} within 1 ms or 5 %", words, not off and bool(logged))


def _hidden_streams(said: Said) -> Verdict:
    """Monitors prefer the secure mode: what is encrypted is said to be so."""
    reasons = {row["reason"] for row in said.streams if row["server"].endswith(":3300")}
    return Verdict(
        "connections to the monitor", "hidden", ", ".join(sorted(reasons)) or "nothing", reasons == {"hidden"}
    )


def _server_ns(row: Row) -> int | None:
    began, ended = row["request_last_received_trace_ns"], row["response_first_sent_trace_ns"]
    return None if began is None or ended is None else ended - began


def _client_ns(row: Row) -> int | None:
    began, ended = row["request_first_sent_trace_ns"], row["response_last_received_trace_ns"]
    return None if began is None or ended is None else ended - began


def operations_of(logged: list[Logged]) -> Iterator[Operation]:
    """The client's operations: what an OSD dispatched and answered."""
    dispatched: dict[tuple[str, str], tuple[int, str]] = {}
    for one in logged:
        if one.kind != "osd_op":
            continue
        if not one.is_sent and (found := _ID.match(one.rest)):
            dispatched[one.host, found["id"].split(":")[1]] = one.at_ns, found["pool"]
        elif one.is_reply and (found := _REPLY.match(one.rest)):
            names = [each.split(" ")[0] for each in found["operations"].split(",") if each[:1].isalpha()]
            method = "+".join(name for name in names if name not in _HINTS)
            at_ns, pool = dispatched[one.host, found["tid"]]
            result, tid = int(found["result"]), int(found["tid"])
            yield Operation(one.host, pool, tid, method, found["object"], result, one.at_ns - at_ns)


def read_logs(folder: Path, hosts: Mapping[str, str]) -> Iterator[Logged]:
    """The messages that the OSDs' logs have, by OSD in order of time."""
    names = {address: name for name, address in hosts.items()}
    for number, host in enumerate(OSDS):
        for line in _lines(folder / f"osd.{number}.log"):
            found = _LINE.match(line)
            if found:
                at_ns = round(datetime.fromisoformat(found["at"]).timestamp() * 1e6) * 1000
                peer, is_sent = names[found["peer"]], found["way"] == "-->"
                yield Logged(at_ns, host, peer, is_sent, found["kind"], bool(found["reply"]), found["rest"])


def _words_of(counter: Counter[Any]) -> str:
    return ", ".join(f"{count} {_word(key)}" for key, count in sorted(counter.items())) or "none"


def _word(key: object) -> str:
    return "–".join(key) if isinstance(key, tuple) else str(key)


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8", "replace").splitlines()
