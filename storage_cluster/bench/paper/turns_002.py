"""Whose turn it was: for each stall of a client's download, whose bytes the storage server sent meanwhile.

From packets alone: in a trace of five clients at work a response of the storage server pauses (`silences`: nothing to
send, while the receiver's window was open). Which client the response is for follows from the ids that requests carry
from host to host (`spans`). Whose turn it was are those whose data the same server sent in the pause, by bytes. The
storage server's own log (`logs/HOST/object.turns.jsonl`) is the truth with which that is compared.

Nothing of the tracer is imported: it is run as a command, and its tables are read as CSV.
"""

import bisect
import collections
import csv
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from storage_cluster.bench.paper import clients_002, experiment_002
from storage_cluster.bench.paper.experiment_002 import CLIENTS, Point
from storage_cluster.bench.paper.points import Notify
from storage_cluster.hosts import cluster, state

STALL_MIN_NS = 20_000_000
SERVICE = "swift-object"
_TRACER = (sys.executable, "-m", "tracer")
_COLOURS = ("#2457c5", "#c25700", "#1a7f4b", "#8a3ffc", "#c62828")


@dataclasses.dataclass(frozen=True)
class Stall:
    """A pause of a response, whose it was, and what others were sent meanwhile."""

    client: str
    transaction_id: str
    from_ns: int
    to_ns: int
    by_packets: dict[str, float]  # client to its share
    by_log: dict[str, float]

    @property
    def agreement(self) -> float:
        """How much of the two shares is the same, 0 to 1."""
        return sum(min(share, self.by_log.get(name, 0.0)) for name, share in self.by_packets.items())


@dataclasses.dataclass(frozen=True)
class Sent:
    """Data packets that the storage server sent, by time."""

    at_ns: list[int]
    clients: list[str]
    sizes: list[int]

    def shares(self, from_ns: int, to_ns: int) -> dict[str, float]:
        """Client to its share of the bytes sent in between."""
        counts: collections.Counter[str] = collections.Counter()
        for number in range(bisect.bisect_right(self.at_ns, from_ns), bisect.bisect_left(self.at_ns, to_ns)):
            counts[self.clients[number]] += self.sizes[number]
        total = sum(counts.values())
        return {name: count / total for name, count in counts.items()} if total else {}


@dataclasses.dataclass(frozen=True)
class Turns:
    """What a trace shows of turns."""

    stalls: tuple[Stall, ...]
    sent: Sent
    trace: Path


def record(point: Point, folder: Path, notify: Notify) -> Turns | None:
    """Record the point's clients, if there is no trace of them yet; None if there can be none. Raises: ClusterError."""
    where = folder / "turns"
    if not (where / "stalls.csv").exists():
        notify("whose turn it was: a trace of five clients")
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir()
        if not _record(point, where, notify):
            return None
        (where / "stalls.csv").touch()
    return read(where)


def _record(point: Point, where: Path, notify: Notify) -> bool:
    state_dir = where.absolute() / "cluster"
    environment = os.environ | {state.STATE_DIR_VARIABLE: str(state_dir), "COLUMNS": "100"}
    orders, out = where / "orders.json", where / "outcomes.json"
    try:
        placed = experiment_002.prepare(point, where, state_dir)
        jobs = [(host, dataclasses.asdict(dataclasses.replace(job, start_s=0.0))) for host, job in placed]
        orders.write_text(json.dumps(jobs), "utf-8")
        clients = (sys.executable, "-m", clients_002.__name__, str(state_dir), str(orders), str(out))
        argv = [*_TRACER, "record", "-o", str(where / "trace"), "--", *clients]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        turns = list(clients_002.read_turns(state_dir))
    finally:
        cluster.down(state_dir)
    if not (where / "trace" / "trace.json").exists() or not out.exists():
        notify(f"  no trace of it ({(done.stderr.strip().splitlines() or ['it said nothing'])[-1]})")
        return False
    (where / "turns.json").write_text(json.dumps(turns), "utf-8")
    export = [*_TRACER, "export", "--to", "csv", "-o", str(where / "csv"), str(where / "trace")]
    subprocess.run(export, env=environment, capture_output=True, check=True)
    (where / "report.txt").write_text(done.stdout, "utf-8")
    return True


def read(where: Path) -> Turns:
    """The stalls in a trace that `record` made."""
    tables = where / "csv"
    exchanges = {row["exchange_id"]: row for row in _rows(tables / "exchanges.csv")}
    clients = {
        number: host.removeprefix("client-").upper()
        for number, host in _root_hosts(tables, exchanges).items()
        if exchanges[number]["service"] == SERVICE and host.startswith("client-")
    }
    sent = _sent_packets(tables, clients)
    log = _LogOfTurns(where)
    transactions = {row["exchange_id"]: row["transaction_id"] for row in exchanges.values()}
    stalls = [
        Stall(clients[number], transactions[number], begin, end, shares, log.shares(transactions[number], begin, end))
        for number, begin, end in _silences(tables, clients)
        if (shares := sent.shares(begin, end))
    ]
    return Turns(tuple(stalls), sent, where / "trace")


def _rows(file: Path) -> Iterator[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream)


def _root_hosts(tables: Path, exchanges: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Exchange to the host of the client whose request caused it."""
    parents = {row["span_id"]: row["parent_span_id"] for row in _rows(tables / "spans.csv")}
    found = {}
    for number in exchanges:
        root = number
        while parents.get(root):
            root = parents[root]
        found[number] = exchanges[root]["client_host"]
    return found


def _sent_packets(tables: Path, clients: Mapping[str, str]) -> Sent:
    hops = sorted(
        (int(row["send_trace_ns"]), clients[row["exchange_id"]], int(row["stream_end"]) - int(row["stream_start"]))
        for row in _rows(tables / "hops.csv")
        if row["kind"] == "data"
        and row["from_client"] == "false"
        and row["exchange_id"] in clients
        and row["send_trace_ns"]
    )
    return Sent([at for at, _, _ in hops], [name for _, name, _ in hops], [size for _, _, size in hops])


def _silences(tables: Path, clients: Mapping[str, str]) -> Iterator[tuple[str, int, int]]:
    for row in _rows(tables / "silences.csv"):
        begin, end = int(row["from_trace_ns"]), int(row["to_trace_ns"])
        is_pause = row["in_response"] == "true" and row["cause"] == "idle" and end - begin >= STALL_MIN_NS
        if is_pause and row["exchange_id"] in clients:
            yield row["exchange_id"], begin, end


class _LogOfTurns:
    """The storage servers' own log of turns: the truth."""

    def __init__(self, where: Path) -> None:
        outcomes = json.loads((where / "outcomes.json").read_text("utf-8"))
        names = {each["access_id"]: each["name"] for each in outcomes if each["access_id"]}
        turns = sorted(
            json.loads((where / "turns.json").read_text("utf-8")), key=lambda line: line["begin_ns"] + line["busy_ns"]
        )
        self._turns = [(line["transaction_id"], names.get(line["access"], "others"), line["bytes"]) for line in turns]
        self._ends = [line["begin_ns"] + line["busy_ns"] for line in turns]

    def shares(self, transaction_id: str, from_ns: int, to_ns: int) -> dict[str, float]:
        """Client to its share of what the medium gave others than this request; it is sent when it is there."""
        counts: collections.Counter[str] = collections.Counter()
        first, last = bisect.bisect_right(self._ends, from_ns), bisect.bisect_left(self._ends, to_ns)
        for own_id, name, size in self._turns[first:last]:
            if own_id != transaction_id:
                counts[name] += size
        total = sum(counts.values())
        return {name: count / total for name, count in counts.items()} if total else {}


def agreement(stalls: Sequence[Stall]) -> float:
    """The share of stalled time in which packets and log name the same client."""
    total = sum(each.to_ns - each.from_ns for each in stalls)
    return sum(each.agreement * (each.to_ns - each.from_ns) for each in stalls) / total if total else 0.0


def same_first(stalls: Sequence[Stall]) -> float:
    """The share of stalls of which both name the same client first."""
    same = [max(each.by_packets, key=lambda name: each.by_packets[name]) for each in stalls]
    true = [max(each.by_log, key=lambda name: each.by_log[name], default="") for each in stalls]
    return sum(one == other for one, other in zip(same, true, strict=True)) / len(stalls) if stalls else 0.0


def example(turns: Turns) -> Stall:
    """A stall to show: the longest of the client that reserved least."""
    of_last = [each for each in turns.stalls if each.client == CLIENTS[-1]] or list(turns.stalls)
    return max(of_last, key=lambda each: each.to_ns - each.from_ns)


def text_lines(turns: Turns) -> list[str]:
    """The answer in Markdown: three sentences and a table of who waited for whom."""
    shown, stalls = example(turns), turns.stalls
    seconds = sum(each.to_ns - each.from_ns for each in stalls) / 1e9
    others = _shares_text(shown.by_packets)
    lines = [
        f"In a trace of the five clients' downloads the storage server's answers stall {len(stalls):,} times for "
        f"{STALL_MIN_NS // 10**6} ms or longer, {seconds:.1f} s together over all streams. "
        f"The longest stall of {shown.client} takes {(shown.to_ns - shown.from_ns) / 1e6:.0f} ms, and while it lasts "
        f"the same server sends to {others}: it was their turn. "
        f"The scheduler's own log names the same clients for {100 * agreement(stalls):.0f} % of the stalled time, and "
        f"the same one first for {100 * same_first(stalls):.0f} % of the stalls.",
        "",
        "| stalled | stalls | seconds | waited for, by packets | by the scheduler's log |",
        "|---|--:|--:|---|---|",
    ]
    for client in CLIENTS:
        own = [each for each in stalls if each.client == client]
        seconds = sum(each.to_ns - each.from_ns for each in own) / 1e9
        packets, log = (_mean_shares(own, which) for which in ("by_packets", "by_log"))
        lines.append(f"| {client} | {len(own):,} | {seconds:.1f} | {_shares_text(packets)} | {_shares_text(log)} |")
    return lines


def _mean_shares(stalls: Sequence[Stall], which: str) -> dict[str, float]:
    counts: collections.Counter[str] = collections.Counter()
    for each in stalls:
        for name, share in getattr(each, which).items():
            counts[name] += share * (each.to_ns - each.from_ns)
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items()} if total else {}


def _shares_text(shares: Mapping[str, float]) -> str:
    ordered = sorted(shares.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in ordered if share >= 0.005)


def figure(turns: Turns) -> Any:
    """The example's surroundings: a lane for each client, a mark for each packet that the storage server sent."""
    from plotly import graph_objects as go  # noqa: PLC0415  of another extra

    shown = example(turns)
    margin_ns = (shown.to_ns - shown.from_ns) // 5
    begin_ns, end_ns = shown.from_ns - margin_ns, shown.to_ns + margin_ns
    first, last = (bisect.bisect_left(turns.sent.at_ns, at_ns) for at_ns in (begin_ns, end_ns))
    made = go.Figure()
    for client, colour in zip(CLIENTS, _COLOURS, strict=True):
        times = [
            (turns.sent.at_ns[number] - begin_ns) / 1e6
            for number in range(first, last)
            if turns.sent.clients[number] == client
        ]
        marker = {"symbol": "line-ns", "size": 18, "line": {"width": 1, "color": colour}}
        made.add_trace(go.Scatter(x=times, y=[client] * len(times), mode="markers", marker=marker, name=client))
    x0, x1 = (shown.from_ns - begin_ns) / 1e6, (shown.to_ns - begin_ns) / 1e6
    text = f"a stream of {shown.client} stalls {x1 - x0:.0f} ms: it waits for {_shares_text(shown.by_packets)}"
    made.add_vrect(x0=x0, x1=x1, fillcolor="#c62828", opacity=0.12, line_width=0)
    made.update_yaxes(categoryorder="array", categoryarray=list(reversed(CLIENTS)), title_text="sent to")
    made.update_xaxes(title_text="ms")
    made.update_layout(
        title={"text": f"Data packets of the storage server; {text}", "font": {"size": 14}}, template="plotly_white",
        height=320, showlegend=False, margin={"l": 60, "r": 20, "t": 40, "b": 40},
    )  # fmt: skip
    return made
