"""Pairing, end to end from pcaps that the simulator wrote, against its exact truth."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from collector.decode.captures import decode
from collector.decode.host_capture import HostSource
from collector.hops.matching import match
from testkit.netsim import Clock, Network, NetworkPath, Station
from tests.helpers.live_segments import keep_only


class Score(NamedTuple):
    """Of matched hops against the truth, by (send, receive, stream range)."""

    truth: int
    found: int
    right: int
    hops: pl.DataFrame


def score_of(
    tmp_path: Path, path: NetworkPath, seed: int = 1, connections: int = 12, isn: int | None = None, **host: object
) -> Score:
    stations = [Station("client", "10.0.0.1", **host), Station("server", "10.0.0.2", **host)]  # type: ignore[arg-type]
    net = Network(stations, path, seed, isn=isn)
    for number in range(connections):
        net.connect(
            "client", "server", 40_000 + number, 300 + 7_000 * number, 90_000 + 40_000 * number, number * 100_000
        )
    net.run()
    decoded = decode([HostSource(file.stem, (file,)) for file in net.write(tmp_path)])
    hops = pl.DataFrame(match(decoded).hops).with_columns(pl.col(pl.Categorical).cast(pl.String))
    columns = ("send_host", "send_frame", "receive_host", "receive_frame", "stream_start", "stream_end")
    found = set(hops.filter(pl.col("state") == "matched").select(columns).iter_rows())
    truth = merge_by_receive({(*t.send, *t.receive, t.start, t.end) for t in net.truth() if t.send and t.receive})
    return Score(len(truth), len(found), len(truth & found), hops)


def merge_by_receive(truth: set[tuple]) -> set[tuple]:
    """Packets of one super-segment that one receive carried are one hop."""
    result: list[tuple] = []
    for row in sorted(truth):
        if result and result[-1][:4] == row[:4] and result[-1][5] == row[4]:
            result[-1] = (*row[:4], result[-1][4], row[5])
        else:
            result.append(row)
    return set(result)


CLEAN = NetworkPath()
CASES = [
    ("offload on both sides", CLEAN, {}),
    ("offload at the sender", CLEAN, {"gro": False}),
    ("offload at the receiver", CLEAN, {"tso": False}),
    ("no offload", CLEAN, {"tso": False, "gro": False}),
    ("loss 0.1 %", NetworkPath(loss=0.001), {}),
    ("loss 1 %", NetworkPath(loss=0.01), {}),
    ("loss 5 %", NetworkPath(loss=0.05), {}),
    ("loss 5 %, no offload", NetworkPath(loss=0.05), {"tso": False, "gro": False}),
    ("reordering", NetworkPath(reorder=0.1), {}),
    ("loss and reordering", NetworkPath(loss=0.02, reorder=0.1), {}),
    ("loss behind the tap", CLEAN, {"behind_tap_loss": 0.02}),
    ("no timestamps", NetworkPath(loss=0.02), {"timestamps": False}),
    ("no timestamps, reordering", NetworkPath(loss=0.02, reorder=0.1), {"timestamps": False}),
    ("IP ID random", NetworkPath(loss=0.02), {"ip_id": "random"}),
]


@pytest.mark.parametrize(("path", "host"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_hops_are_the_truth(tmp_path: Path, path: NetworkPath, host: dict[str, object]) -> None:
    score = score_of(tmp_path, path, **host)
    assert score.truth > 1000
    assert score.right >= 0.9999 * score.found, f"precision {score.right}/{score.found}"
    assert score.right >= 0.9999 * score.truth, f"recall {score.right}/{score.truth}"


def test_sequence_numbers_that_wrap(tmp_path: Path) -> None:
    score = score_of(tmp_path, NetworkPath(loss=0.01), isn=0xFFFFF000)
    assert score.right == score.found == score.truth


@pytest.mark.parametrize("host", [{}, {"timestamps": False}], ids=["timestamps", "nothing"])
def test_where_nothing_decides_it_says_so(tmp_path: Path, host: dict[str, object]) -> None:
    score = score_of(tmp_path, NetworkPath(loss=0.02), ip_id="zero", **host)
    assert score.right == score.found, "a wrong hop is worse than none"
    assert score.right >= 0.9 * score.truth
    missed = score.hops.filter(pl.col("receive_frame").is_not_null() & (pl.col("state") != "matched"))
    assert set(missed["state"]) == {"ambiguous"}


def test_a_capture_that_drops_is_not_a_network_that_loses(tmp_path: Path) -> None:
    score = score_of(tmp_path, CLEAN, capture_drop=0.1)
    assert score.right >= 0.9999 * score.found
    data = score.hops.filter((pl.col("kind") == "data") & pl.col("receive_frame").is_null())
    assert len(data) > 10
    assert set(data["state"]) == {"capture_dropped"}


@dataclass(frozen=True)
class SteppedClock(Clock):
    """Set by `step_ns` at a moment."""

    step_at_ns: int = 0
    step_ns: int = 0

    def read(self, at_ns: int) -> int:
        return super().read(at_ns) + (self.step_ns if at_ns >= self.step_at_ns else 0)


@pytest.mark.parametrize("step_ns", [-400_000_000, 400_000_000])
def test_zero_length_segments_pair_across_a_step_of_a_clock(tmp_path: Path, step_ns: int) -> None:
    """What is known of causality around a step is wrong; a whole header with timestamps, seen once at each end, is
    not."""
    lasts_ns = 2_000_000
    clock = SteppedClock(step_at_ns=lasts_ns // 2, step_ns=step_ns)
    net = Network([Station("client", "10.0.0.1"), Station("server", "10.0.0.2", clock)], CLEAN, 1)
    net.connect("client", "server", 40_000, 300, 600_000)
    net.run()
    assert max(record.at_ns for record in net.records["client"]) > lasts_ns
    keep_only(net, "client", lasts_ns // 4, 1 << 62)
    decoded = decode([HostSource(file.stem, (file,)) for file in net.write(tmp_path)])
    hops = pl.DataFrame(match(decoded).hops).with_columns(pl.col(pl.Categorical).cast(pl.String))
    sent = hops.filter((pl.col("send_host") == "client") & pl.col("send_frame").is_not_null())
    assert len(sent.filter(pl.col("kind") == "ack")) > 10
    assert sent["state"].unique().to_list() == ["matched"]
    assert hops.filter(pl.col("state").is_in(["unmatched", "ambiguous"])).is_empty()
