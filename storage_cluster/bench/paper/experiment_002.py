"""Document 002: reserved throughput through S3, downloads and uploads with 1 to 5 streams, and five clients at once.

The machines are those of the bundled topology `papio`: five clients, the gateway with the book of reservations, one or
two storage servers. All rates and sizes are the document's over `SCALE`, since this machine's two processors do the
work of eight machines; parts are S3's smallest (5 MiB), not a tenth of 32 MB. Where the document's Papio gave a
reservation to one storage server or two, here the store has one or two.

A point runs its clients each on its host, and keeps what they did as `NAME.json`; points of another reservation, and
of five clients, have a cluster of their own.
Throughput in windows is that of one second each, from `WARM_S` after the start on: of a download the bytes that reached
the client, of an upload the bytes that the storage server's medium was given for it.

Source: 谷村, 柳田: 予約に基づくストレージQoS実現のためのS3 REST APIの拡張実装 (figures 4 to 7, §4).
"""

import collections
import dataclasses
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from storage_cluster import topology
from storage_cluster.bench.errors import RunError
from storage_cluster.bench.paper import clients_002
from storage_cluster.bench.paper.client_002 import BUCKET_S, READ, WRITE, Job, Outcome, outcome_of
from storage_cluster.bench.paper.clients_002 import Placed
from storage_cluster.bench.paper.points import Notify
from storage_cluster.hosts import cluster

SCALE = 20
MB = 1_000_000
PART_BYTES = 5 * 1024**2
LEVELS = {READ: ((300, 1), (500, 2)), WRITE: ((150, 1), (250, 2))}
"""Figures 4 and 5: the document's MB/s, and the storage servers that it was given."""
STREAMS = (0, 1, 2, 3, 4, 5)
"""0: one request, as `Standard` in the figures."""
TOTALS = {READ: 300, WRITE: 150}
CLIENTS = ("A", "B", "C", "D", "E")
SHARES = (5, 4, 3, 2, 1)
CLIENT_STREAMS = 3
GREEDY_STREAMS = 8
WARM_S, COOL_S = 2.0, 1.0
TRACE_S, TRACE_BYTES = 6.0, 20 * MB
START_AFTER_S = 3.0
BUSY, DEVICE_MB_PER_S, STRIPE_MB = 0.95, {READ: 20.0, WRITE: 10.0}, 0.2
BUCKET = "data"
SETUPS = ("plain", "greedy", "none")
"""Figures 6 and 7: alone; beside a client without a reservation that asks with eight streams; nobody reserves."""
FIGURES = ("4", "5", "6", "7")
_RANKS, _STREAMS_RANK = {"plain": 0, "greedy": 1, "none": 3}, 2
"""What matters most is done first."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is done."""

    figures: tuple[str, ...] = FIGURES
    object_bytes: int = 1_000 * MB // SCALE
    times: int = 1
    seconds: float = 30.0


QUICK = Plan(object_bytes=20 * MB, times=2, seconds=10.0)


@dataclasses.dataclass(frozen=True)
class Point:
    """Clients that run at once on a cluster with so many storage servers."""

    name: str
    figure: str
    servers: int
    placed: tuple[Placed, ...]
    object_bytes: int
    group: str
    """Points of one group follow each other on the same cluster."""


@dataclasses.dataclass(frozen=True)
class Done:
    """What came of a point."""

    outcomes: dict[str, Outcome]
    given: dict[str, dict[int, int]]
    """Client to the bytes that media were given for it in each second of the wall clock."""
    waits: dict[str, dict[str, float]]
    """Client to whose turns its requests waited for, seconds."""
    asked_s: dict[str, float]
    """Client to the seconds that its requests waited in all."""


def points(plan: Plan) -> list[Point]:
    """All points of a plan, in the order in which they are done."""
    made = []
    for figure, direction in (("4", READ), ("5", WRITE)):
        if figure in plan.figures:
            made += [
                _stream_point(plan, figure, direction, rate, servers, streams)
                for rate, servers in LEVELS[direction]
                for streams in STREAMS
            ]
    for figure, direction in (("6", READ), ("7", WRITE)):
        if figure in plan.figures:
            made += [_five_point(plan, figure, direction, setup) for setup in SETUPS]
    return sorted(made, key=lambda point: _RANKS.get(point.group.rpartition("-")[2], _STREAMS_RANK))


def traced_point(plan: Plan) -> Point:
    """What is recorded to see whose turn it was: a few seconds of figure 6."""
    return _five_point(dataclasses.replace(plan, seconds=TRACE_S, object_bytes=TRACE_BYTES), "6", READ, "plain")


def _stream_point(plan: Plan, figure: str, direction: str, rate: int, servers: int, streams: int) -> Point:
    job = _job("A", direction, streams, rate / SCALE, plan.object_bytes)
    job = dataclasses.replace(job, times=plan.times)
    return Point(
        f"{direction}-{rate}-{streams}", figure, servers, (("client-a", job),), plan.object_bytes, f"{direction}-{rate}"
    )


def _five_point(plan: Plan, figure: str, direction: str, setup: str) -> Point:
    placed, size_bytes = [], plan.object_bytes // 2
    for client, share in zip(CLIENTS, SHARES, strict=True):
        rate = TOTALS[direction] / SCALE * share / sum(SHARES) if setup != "none" else 0.0
        job = _job(client, direction, CLIENT_STREAMS, rate, size_bytes)
        placed.append((f"client-{client.lower()}", dataclasses.replace(job, seconds=plan.seconds)))
    if setup == "greedy":
        job = _job("greedy", direction, GREEDY_STREAMS, 0.0, size_bytes)
        placed.append(("proxy", dataclasses.replace(job, seconds=plan.seconds, goes_on=True)))
    return Point(f"five-{direction}-{setup}", figure, 1, tuple(placed), size_bytes, f"five-{direction}-{setup}")


def _job(name: str, direction: str, streams: int, rate: float, size_bytes: int) -> Job:
    key = f"object-{name}" + (f"-{streams}" if direction == WRITE else "")
    return Job(name, direction, BUCKET, key, size_bytes, "", "", streams, PART_BYTES, rate)


def do(todo: Sequence[Point], folder: Path, notify: Notify) -> None:
    """Run the points that are not done. Raises: ClusterError."""
    state_dir = folder.absolute() / "cluster"
    last: Point | None = None
    try:
        for number, point in enumerate(todo, 1):
            file = folder / f"{point.name}.json"
            if not file.exists():
                notify(f"{number}/{len(todo)}  {point.name}")
                document = _run(point, folder, state_dir, is_ready=last is not None and last.group == point.group)
                last = point
                draft = file.with_suffix(".tmp")
                draft.write_text(json.dumps(document), "utf-8")
                draft.replace(file)
    finally:
        cluster.down(state_dir)


def load(todo: Sequence[Point], folder: Path) -> dict[str, Done]:
    """What came of the points that are done."""
    files = {point.name: folder / f"{point.name}.json" for point in todo}
    return {name: _read_done(json.loads(file.read_text("utf-8"))) for name, file in files.items() if file.exists()}


def topology_file(servers: int, folder: Path) -> Path:
    """The bundled topology with so many storage servers."""
    text = topology.find("papio").read_text("utf-8")
    if servers == 1:
        head, _, rest = text.partition('[[host]]\nname = "storage2"')
        text = head + rest[rest.index("[[user]]") :]
    file = folder / f"papio-{servers}.toml"
    file.write_text(text, "utf-8")
    return file


def prepare(point: Point, folder: Path, state_dir: Path, *, is_ready: bool = False) -> list[Placed]:
    """What the point's clients do, with addresses, on a cluster that has what they read. Raises: ClusterError.

    `is_ready`: the cluster is up, and has it.
    """
    if not is_ready:
        cluster.down(state_dir)
        cluster.up(state_dir, topology_file(point.servers, folder), quiet=True)
    found = topology.load(state_dir / "topology.toml")
    gateway, book = found.gateways[0], found.reservation_book
    assert book is not None
    gateway_url, book_url = (f"http://{each.address}:{each.port}" for each in (gateway, book))
    placed = [
        (host, dataclasses.replace(job, gateway_url=gateway_url, book_url=book_url)) for host, job in point.placed
    ]
    if not is_ready:
        _fill(point.servers, placed, state_dir)
    start_s = time.time() + START_AFTER_S
    return [(host, dataclasses.replace(job, start_s=start_s)) for host, job in placed]


def _fill(servers: int, placed: Sequence[Placed], state_dir: Path) -> None:
    """Make the bucket, and write what is to be read. Raises: RunError."""
    is_read = placed[0][1].direction == READ
    for number, (host, job) in enumerate(placed if is_read else placed[:1]):
        # Dealt out to the storage servers in turn, as a spread reservation does it: it is more than one can give.
        rate = 1.1 * _WHOLE_MB_PER_S if servers > 1 else 0.0
        filling = dataclasses.replace(
            job, direction=WRITE, streams=4, reserve_mb_per_s=rate, seconds=0.0, times=1, makes_bucket=not number,
            size_bytes=job.size_bytes if is_read else 1, key=job.key if is_read else "first",
        )  # fmt: skip
        _check(clients_002.run(state_dir, [(host, filling)]))


_WHOLE_MB_PER_S = 9.0
"""What is reserved to fill buckets: of 10 that a device writes."""


def _check(outcomes: Sequence[Outcome]) -> None:
    for each in outcomes:
        if each.error:
            raise RunError(f"the client {each.name} failed ({each.error})", "see logs below the folder's cluster/logs")


def _run(point: Point, folder: Path, state_dir: Path, *, is_ready: bool) -> dict[str, Any]:
    outcomes = clients_002.run(state_dir, prepare(point, folder, state_dir, is_ready=is_ready))
    _check(outcomes)
    names = names_by_access(outcomes)
    given: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    waits: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    asked_s: collections.Counter[str] = collections.Counter()
    for line in clients_002.read_turns(state_dir):
        name = names.get(line["access"], "others")
        given[name][(line["begin_ns"] + line["busy_ns"]) // round(BUCKET_S * 1e9)] += line["bytes"]
        asked_s[name] += line["waited_ns"] / 1e9
        for other, ms in line["turns"].items():
            waits[name][names.get(other, "others")] += ms / 1e3
    return {
        "outcomes": [dataclasses.asdict(each) for each in outcomes],
        "given": given,
        "waits": waits,
        "asked_s": asked_s,
    }


def names_by_access(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Clients by the ids of their reservations; the only one without one has what was given without (`""`)."""
    names = {each.access_id: each.name for each in outcomes if each.access_id}
    without = [each.name for each in outcomes if not each.access_id]
    return names | ({"": without[0]} if len(without) == 1 else {})


def _read_done(document: Mapping[str, Any]) -> Done:
    outcomes = {each["name"]: outcome_of(each) for each in document["outcomes"]}
    given = {name: {int(at): count for at, count in found.items()} for name, found in document["given"].items()}
    return Done(outcomes, given, document["waits"], document["asked_s"])


def throughputs(outcome: Outcome, size_bytes: int) -> list[float]:
    """MB/s of each transfer."""
    return [size_bytes / seconds / MB for seconds in outcome.transfers_s]


def mean_throughput(outcome: Outcome, size_bytes: int) -> float:
    """The mean of the transfers, MB/s."""
    return statistics.mean(throughputs(outcome, size_bytes))


def windows(done: Done, name: str, direction: str) -> list[float]:
    """MB/s of a client in each window of a second, while all clients are at work."""
    outcomes = done.outcomes.values()
    first_s = max(each.began_s for each in outcomes) + WARM_S
    last_s = min(each.ended_s for each in outcomes) - COOL_S
    own = done.outcomes[name]
    if direction == READ or name not in done.given:
        moved = {own.began_s + number * BUCKET_S: count for number, count in own.moved.items()}
    else:
        moved = {number * BUCKET_S: count for number, count in done.given.get(name, {}).items()}
    counts = [0] * max(0, int(last_s - first_s))
    for at_s, count in moved.items():
        number = int((at_s - first_s) // 1)
        if 0 <= number < len(counts):
            counts[number] += count
    return [count / MB for count in counts]


def is_seen_by_second(done: Done, name: str, direction: str) -> bool:
    """Whether windows show what moved in them: of an upload without turns only what entered buffers is known."""
    return direction == READ or name in done.given


def device_windows(done: Done) -> list[dict[str, float]]:
    """MB/s that the device gave each client, in each window in which all clients are at work."""
    first_s = max(each.began_s for each in done.outcomes.values()) + WARM_S
    last_s = min(each.ended_s for each in done.outcomes.values()) - COOL_S
    found: list[dict[str, float]] = [{} for _ in range(max(0, int(last_s - first_s)))]
    for name, given in done.given.items():
        for at, count in given.items():
            number = int((at * BUCKET_S - first_s) // 1)
            if 0 <= number < len(found):
                found[number][name] = found[number].get(name, 0.0) + count / MB
    return found


def is_busy(window: Mapping[str, float], direction: str) -> bool:
    """Whether the device gave `BUSY` of its bandwidth in a window."""
    return sum(window.values()) >= BUSY * DEVICE_MB_PER_S[direction]
