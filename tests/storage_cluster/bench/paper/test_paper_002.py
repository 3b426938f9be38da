"""Document 002: its points, windows of a second, verdicts, and whose turn a stall was, on small made-up results."""

import asyncio
import csv
import dataclasses
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from storage_cluster import topology
from storage_cluster.bench.engine.connection import Reply
from storage_cluster.bench.paper import client_002, experiment_002, statements_002, turns_002
from storage_cluster.bench.paper.client_002 import READ, WRITE, Client, CountedConnection, Job, Outcome
from storage_cluster.bench.paper.experiment_002 import COOL_S, MB, WARM_S, Done, Plan
from testkit.loopback_store import LoopbackStore

BEGAN_S = 1000.0


def outcome(name: str, reserved: float, mb_by_second: Sequence[float], transfers_s: Sequence[float] = ()) -> Outcome:
    """A client that moved so many MB in each second."""
    moved = {round(10 * second): round(mb * MB) for second, mb in enumerate(mb_by_second)}
    ended_s = BEGAN_S + len(mb_by_second)
    return Outcome(name, reserved, began_s=BEGAN_S, ended_s=ended_s, moved=moved, transfers_s=list(transfers_s))


def done_of(*outcomes: Outcome) -> Done:
    return Done({each.name: each for each in outcomes}, {}, {}, {})


def test_points_are_those_of_the_figures() -> None:
    points = experiment_002.points(Plan())
    assert len(points) == 4 * 6 + 6
    assert len({point.name for point in points}) == len(points)
    five = next(point for point in points if point.name == "five-read-greedy")
    rates = [job.reserve_mb_per_s for _, job in five.placed]
    assert rates == pytest.approx([5, 4, 3, 2, 1, 0])
    assert len({host for host, _ in five.placed}) == 6, "each client has a host of its own"
    assert {point.figure for point in experiment_002.points(Plan(figures=("5",)))} == {"5"}


@pytest.mark.parametrize(("servers", "hosts"), [(1, ["storage1"]), (2, ["storage1", "storage2"])])
def test_the_topology_has_so_many_storage_servers(servers: int, hosts: list[str], tmp_path: Path) -> None:
    found = topology.load(experiment_002.topology_file(servers, tmp_path))
    assert [host.name for host in found.hosts if host.devices] == hosts
    assert found.reservation_book is not None
    assert sum(not host.services for host in found.hosts) == 5


def test_windows_are_whole_seconds_while_all_are_at_work() -> None:
    seconds = [100, 100, 5, 6, 7, 100]
    assert WARM_S == 2 and COOL_S == 1
    assert experiment_002.windows(done_of(outcome("A", 1, seconds)), "A", READ) == [5, 6, 7]
    both = done_of(outcome("A", 1, seconds), outcome("B", 1, seconds[:5]))
    assert experiment_002.windows(both, "A", READ) == [5, 6]


def test_windows_of_uploads_are_what_the_medium_was_given() -> None:
    given = {"A": {round((BEGAN_S + second) * 10): 3 * MB for second in range(6)}}
    done = Done({"A": outcome("A", 1, [0] * 6)}, given, {}, {})
    assert experiment_002.windows(done, "A", WRITE) == [3, 3, 3]


def test_what_entered_buffers_has_a_mean_and_no_lowest_window() -> None:
    done = done_of(outcome("A", 0, [2.0] * 6))
    rows = statements_002.window_rows({"five-read-none": done, "five-write-none": done})
    assert rows[2:] == [
        "| figure 6, none | A | none | 2.00 | 2.00 | 3 |  |",
        "| figure 7, none | A | none | 2.00 |  | 3 |  |",
    ]


@pytest.mark.parametrize(("worst", "agrees"), [(10.0, True), (9.9, False)])
def test_a_window_below_the_reservation_is_counted(worst: float, agrees: bool) -> None:
    seconds = [10.0] * 10 + [worst] + [12.0] * 10
    done = {"five-read-plain": done_of(outcome("A", 10.0, seconds), outcome("B", 1.0, [1.0] * 21))}
    mean, windows = statements_002.statements(done, MB)
    assert mean.agrees
    assert windows.agrees is agrees
    assert f"A with {10 * worst:.0f} %" in windows.found


def test_the_device_is_judged_in_seconds_in_which_it_was_busy() -> None:
    given: dict[str, dict[int, int]] = {"A": {}, "others": {}}
    for second, (own, rest) in enumerate([(5.0, 15.0)] * 2 + [(4.9, 15.0), (1.0, 1.0), (4.7, 15.0)] + [(5.0, 15.0)]):
        at = round((BEGAN_S + second) * 10)
        given["A"][at], given["others"][at] = round(own * MB), round(rest * MB)
    point = Done({"A": outcome("A", 5.0, [4] * 6)}, given, {}, {})
    found = experiment_002.device_windows(point)
    assert [(each["A"], experiment_002.is_busy(each, READ)) for each in found] == [
        (4.9, True),
        (1.0, False),
        (4.7, True),
    ]
    assert statements_002.device_share(point, READ) == (0.5, 2)
    _, windows, _ = statements_002.statements({"five-read-plain": point}, MB)
    assert windows.why.startswith("of 3 such windows 1 are seconds in which the device was idle")
    assert windows.why.endswith("in 1 the device gave it to within a stripe, in 1 it gave less")


def test_what_the_device_gave_without_a_reservation_is_the_only_clients_that_has_none() -> None:
    made = [dataclasses.replace(outcome(name, 1, []), access_id=f"id-{name}") for name in ("A", "B")]
    assert experiment_002.names_by_access(made) == {"id-A": "A", "id-B": "B"}
    greedy, other = outcome("greedy", 0, []), outcome("other", 0, [])
    assert experiment_002.names_by_access([*made, greedy]) == {"id-A": "A", "id-B": "B", "": "greedy"}
    assert "" not in experiment_002.names_by_access([*made, greedy, other])


def test_verdicts_of_streams_follow_the_throughputs() -> None:
    def stream_points(direction: str, seconds: float, best_s: float) -> Mapping[str, Done]:
        return {
            f"{direction}-{rate}-{streams}": done_of(outcome("A", 1, [], [best_s if streams == 3 else seconds]))
            for rate, _ in experiment_002.LEVELS[direction]
            for streams in experiment_002.STREAMS
        }

    size = 25 * MB  # in a second: all that the higher level reserves
    made = statements_002.statements(stream_points(READ, 5, 1) | stream_points(WRITE, 5, 1), size)
    assert [each.agrees for each in made] == [True, True, True, False]
    assert "25.0 with 3" in made[1].found


def test_no_stream_of_a_client_pauses_between_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    streams, busy, seconds = 6, _Busy(), 1.0

    class Watched(CountedConnection):
        async def exchange(self, *args: Any, **options: Any) -> Reply:
            busy.change(1)
            try:
                return await super().exchange(*args, **options)
            finally:
                busy.change(-1)

    with LoopbackStore(tmp_path) as store:
        gateway = store.topology.service("s3")
        job = Job("A", WRITE, "data", "k", 6 * MB, f"http://{gateway.address}:{gateway.port}", makes_bucket=True)
        assert not asyncio.run(Client(job).run()).error
        monkeypatch.setattr(client_002, "CountedConnection", Watched)
        reading = dataclasses.replace(job, direction=READ, makes_bucket=False, streams=streams, part_bytes=5 * 1024**2)
        outcome = Outcome("A")
        while len(outcome.transfers_s) <= streams:  # else there is no pause to be seen; machines are slow at times
            busy, seconds = _Busy(), 2 * seconds
            outcome = asyncio.run(Client(dataclasses.replace(reading, seconds=seconds)).run())
            assert not outcome.error
            assert seconds < 100, "no object was read in a minute"
    assert seconds <= outcome.ended_s - outcome.began_s < seconds + 20, "it leaves off at the end of the time"
    assert busy.mean() > streams - 1


class _Busy:
    """How many streams have a request under way, over time: replies that come together leave several idle briefly."""

    def __init__(self) -> None:
        self._changes: list[tuple[float, int]] = []

    def change(self, by: int) -> None:
        """One more, or one less."""
        count = self._changes[-1][1] if self._changes else 0
        self._changes.append((time.monotonic(), count + by))

    def mean(self) -> float:
        """From the first request to the last one's end."""
        spans = [(after[0] - one[0], one[1]) for one, after in itertools.pairwise(self._changes)]
        return sum(lasted_s * count for lasted_s, count in spans) / sum(lasted_s for lasted_s, _ in spans)


def _write(file: Path, rows: Sequence[Mapping[str, object]]) -> None:
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _trace(where: Path) -> None:
    """Exchange 1 and 2: clients A and B to the gateway; 3 and 4: what these caused at the storage server."""
    tables = where / "csv"
    tables.mkdir()
    made = [
        ("1", "client-a", "s3"),
        ("2", "client-b", "s3"),
        ("3", "gateway", "swift-object"),
        ("4", "gateway", "swift-object"),
    ]
    _write(
        tables / "exchanges.csv",
        [
            {"exchange_id": number, "client_host": host, "service": service, "transaction_id": f"tx{number}"}
            for number, host, service in made
        ],
    )
    parents = {"1": "", "2": "", "3": "1", "4": "2"}
    _write(tables / "spans.csv", [{"span_id": one, "parent_span_id": parent} for one, parent in parents.items()])
    ms = 1_000_000
    sent = [("3", 0, 1), ("4", 10, 3000), ("4", 30, 3000), ("3", 60, 1), ("4", 70, 500)]
    _write(
        tables / "hops.csv",
        [
            {
                "kind": "data",
                "from_client": "false",
                "exchange_id": number,
                "send_trace_ns": at * ms,
                "stream_start": 0,
                "stream_end": size,
            }
            for number, at, size in sent
        ],
    )
    pauses = [("3", 0, 60, "idle"), ("3", 0, 60, "unread"), ("4", 10, 15, "idle")]
    _write(
        tables / "silences.csv",
        [
            {
                "exchange_id": number,
                "in_response": "true",
                "from_trace_ns": begin * ms,
                "to_trace_ns": end * ms,
                "cause": cause,
            }
            for number, begin, end, cause in pauses
        ],
    )
    (where / "outcomes.json").write_text(json.dumps([{"access_id": "a", "name": "A"}, {"access_id": "b", "name": "B"}]))
    turns = [("b", 5, 4), ("", 12, 8), ("b", 25, 4), ("a", 50, 5), ("a", 55, 50)]  # those of A end its own stall
    (where / "turns.json").write_text(
        json.dumps(
            [
                {
                    "access": access,
                    "begin_ns": begin * ms,
                    "busy_ns": busy * ms,
                    "bytes": 3000,
                    "transaction_id": "tx3" if access == "a" else "-",
                }
                for access, begin, busy in turns
            ]
        )
    )


def test_a_stall_was_the_turn_of_those_who_were_sent_to_meanwhile(tmp_path: Path) -> None:
    _trace(tmp_path)
    found = turns_002.read(tmp_path)
    (stall,) = found.stalls  # not one whose reader was slow, nor a short one
    assert (stall.client, stall.transaction_id, stall.to_ns - stall.from_ns) == ("A", "tx3", 60_000_000)
    assert stall.by_packets == {"B": 1.0}
    assert stall.by_log == {"B": pytest.approx(2 / 3), "others": pytest.approx(1 / 3)}
    assert turns_002.agreement(found.stalls) == pytest.approx(2 / 3)
    assert turns_002.same_first(found.stalls) == 1.0
    text = "\n".join(turns_002.text_lines(found))
    assert "A takes 60 ms, and while it lasts the same server sends to B 100 %" in text
    assert "67 % of the stalled time" in text
