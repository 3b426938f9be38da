"""What held a sender that stood still, by the figures of the moment in which it went on."""

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from msgspec.structs import fields

from collector.findings.stalls import stall_findings
from collector.findings.symptoms import Symptoms
from collector.findings.thresholds import DEFAULTS
from collector.hops.sender_pauses import GROUP_COLUMNS, pause_table, pauses_by_host_pair
from tests.helpers.scripts import play

MS = 1_000_000
HOPS = play("a:40000 > b:8080\n 0 > 0:65536 PUT /x\n 100 > 65536:131072").hops


def pause(stood_ns: int, rtt_ns: int | None, **figures: object) -> pl.DataFrame:
    """What is reported of one pause of that length."""
    row = {
        **{"connection_id": 1, "from_client": True, "host": "a", "stream_offset": 65_536, "mss_bytes": 1448},
        **{"stopped_ns": 0, "full_ns": None, "released_ns": stood_ns, "resumed_ns": stood_ns, "rtt_ns": rtt_ns},
        **{"resumed_bytes": 1448, "in_flight_bytes": 65_536, "waiting_bytes": 65_536, "resent": False},
        **{"room_bytes": 100_000, "window_closed": False, "idle_ns": 0, "in_flight_before_idle_bytes": 0},
        **figures,
    }
    stamps = {f"{name}_trace_ns": row[f"{name}_ns"] for name in ("stopped", "released", "resumed")}
    columns = {name: pa.array([value], pa.int64() if value is None else None) for name, value in (row | stamps).items()}
    return pauses_by_host_pair(pa.table(columns), HOPS, DEFAULTS.pauses)


def why(stood_ns: int, rtt_ns: int | None, **figures: object) -> list[str]:
    """What held the sender, who that is, and who received."""
    return [
        f"{row['why']} {row['send_host']} {row['receive_host']}"
        for row in pause(stood_ns, rtt_ns, **figures).to_dicts()
    ]


def test_times_that_the_core_does_not_know_are_null() -> None:
    """One that was taken for 1970 made a wait of 57 years."""
    numbers = {"stopped_ns": 90 * MS, "full_ns": -1, "rtt_ns": -1, "room_bytes": 0, "host": 0}
    found = {name: np.array([value, value]) for name, value in numbers.items()}
    found["rtt_ns"][1] = 30 * MS
    table = pause_table(found, pa.array(["a"]))
    assert table["full_ns"].to_pylist() == [None, None]
    assert table["rtt_ns"].to_pylist() == [None, 30 * MS]
    assert table["room_bytes"].to_pylist() == [0, 0]


@pytest.mark.parametrize(
    ("stood_ns", "rtt_ns", "figures", "expected"),
    [
        (30 * MS, 30 * MS, {"room_bytes": 0}, "small_window a b"),
        (30 * MS, 30 * MS, {"room_bytes": 0, "window_closed": True}, "small_window a b"),
        (90 * MS, 30 * MS, {"room_bytes": 0}, "zero_window a b"),
        (90 * MS, 30 * MS, {"room_bytes": 0, "window_closed": True}, "zero_window a b"),
        (30 * MS, None, {"room_bytes": None, "window_closed": True}, "zero_window a b"),
        (90 * MS, 30 * MS, {}, None),
        (MS // 2, 10_000, {"room_bytes": 0}, None),
        (MS // 2, 10_000, {"room_bytes": 0, "resumed_bytes": 0}, "zero_window a b"),
    ],
    ids=[
        "full for a round trip",
        "closed for a round trip, on a long way: read at once, too small",
        "full for three",
        "closed for three",
        "closed, on a way of unknown length",
        "not for the window",
        "short, since a copy was sent in between",
        "never opened again",
    ],
)
def test_a_receiver_that_does_not_read_is_distinguished_from_a_lossy_path(
    stood_ns: int, rtt_ns: int | None, figures: dict[str, object], expected: str | None
) -> None:
    assert why(stood_ns, rtt_ns, **figures) == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("room_bytes", "full_ns", "cost_ns"),
    [(0, -40 * MS, 130 * MS), (0, 20 * MS, 90 * MS), (0, None, 90 * MS), (100_000, -40 * MS, None)],
    ids=["full before a copy was sent", "full since", "not known since when", "not for the window"],
)
def test_a_window_that_nobody_reads_costs_from_the_moment_it_was_full(
    room_bytes: int, full_ns: int | None, cost_ns: int | None
) -> None:
    found = pause(90 * MS, 30 * MS, room_bytes=room_bytes, full_ns=full_ns)
    assert found["cost_ns"].to_list() == ([] if cost_ns is None else [cost_ns])
    assert (found["end_ns"] - found["begin_ns"]).to_list() == found["cost_ns"].to_list()


@pytest.mark.parametrize(
    ("room_bytes", "rtt_ns"), [(0, 90 * MS), (0, 60 * MS)], ids=["for a round trip", "for less than two"]
)
def test_a_small_window_costs_what_it_waited_for_acknowledgements(room_bytes: int, rtt_ns: int) -> None:
    assert pause(90 * MS, rtt_ns, room_bytes=room_bytes, full_ns=-40 * MS)["cost_ns"].to_list() == [90 * MS]


@pytest.mark.parametrize(
    ("each_ns", "count", "severity"),
    [(20 * MS, 90, "warning"), (20 * MS, 50, "notice"), (600 * MS, 1, "warning"), (600 * MS, 0, None)],
    ids=["many short ones", "half of all time", "one that outlived a probe", "none"],
)
def test_a_closed_window_is_weighed_by_its_length_and_by_what_all_of_them_cost(
    each_ns: int, count: int, severity: str | None
) -> None:
    row = dict.fromkeys(GROUP_COLUMNS, 0) | {
        "why": "zero_window",
        "send_host": "a",
        "receive_host": "b",
        "count": count,
    }
    row |= {"cost_ns": each_ns * count, "worst_ns": each_ns, "connections": 1}
    paused = pl.DataFrame([row] if count else [], schema=GROUP_COLUMNS)
    nothing = {field.name: pl.DataFrame() for field in fields(Symptoms)}
    found = stall_findings(Symptoms(**nothing | {"paused": paused}), 2_000 * MS, DEFAULTS.stalls, DEFAULTS.severity)
    assert [finding.severity for finding in found] == ([severity] if severity else [])
