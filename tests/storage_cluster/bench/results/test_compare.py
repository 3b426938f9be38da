"""Comparing runs: real differences are seen, chance is not, and intervals cover what they promise."""

import random
from pathlib import Path

import pytest

from storage_cluster.bench.errors import RunError
from storage_cluster.bench.results import rows
from storage_cluster.bench.results.compare import Comparison, Difference, as_text, compare
from storage_cluster.bench.results.figures import Tally
from storage_cluster.bench.results.folder import Run, RunInfo, StageInfo, WorkInfo
from storage_cluster.bench.results.rows import Row, RowFile, as_line

START = 1_700_000_000_000_000_000


def make_run(
    folder: Path, seed: int, *, mean_ms: float = 10.0, rate: float = 100.0, failing: float = 0.0, waves: float = 0.0
) -> Run:
    """A run of 20 s; with `waves`, whole seconds are slow by so much or not at all."""
    folder.mkdir()
    rng = random.Random(seed)
    file, tally = RowFile.create(folder / rows.FILE_NAME), Tally()
    lines: list[str] = []
    slow = {second: rng.random() < 0.5 for second in range(20)}
    for n in range(int(20 * rate)):
        begin = n / rate
        response_ms = rng.expovariate(1 / mean_ms) + 1 + (waves if slow[int(begin)] else 0.0)
        row = Row(
            n, 0, "PUT", "local", 10, "e", "c/o", "status" if rng.random() < failing else "", START + int(begin * 1e9),
            1, int(response_ms * 1e6), "main", "main", "write", 201, 1, True, True, 0, -1, "tx", 1,
        )  # fmt: skip
        tally.add(row)
        lines.append(as_line(row))
    file.write("".join(lines))
    file.close()
    stages = (StageInfo("main", (WorkInfo("main", 1, 20.0),)),)
    return Run(RunInfo("n", "toml", "x", START, stages, "done"), tally, folder)


def differences(found: list[Comparison]) -> dict[str, Difference]:
    return {difference.name: difference for difference in found[0].differences}


def test_a_real_difference_is_seen(tmp_path: Path) -> None:
    first, second = make_run(tmp_path / "a", 1), make_run(tmp_path / "b", 2, mean_ms=13.0, rate=80.0, failing=0.1)
    found = differences(compare(first, second))
    assert {name: each.verdict for name, each in found.items()} == dict.fromkeys(found, "worse")
    assert found["throughput"].change == pytest.approx(0.8 * 0.9 - 1, abs=0.03)
    assert found["mean"].low < 14.0 / 11.0 - 1 < found["mean"].high
    assert found["mean"].first == pytest.approx(11.0, rel=0.05)
    for percent in (50, 90, 95, 99):
        exact = first.tally.total().response.percentile_ns(percent) / 1e6
        assert found[f"{percent} %"].first == pytest.approx(exact, rel=0.005)


def test_chance_is_no_difference(tmp_path: Path) -> None:
    found = differences(compare(make_run(tmp_path / "a", 1), make_run(tmp_path / "b", 2)))
    assert {each.verdict for each in found.values()} == {"no difference seen"}


@pytest.mark.parametrize(
    ("second", "verdict"),
    [(100.6, "better"), (100.01, "no difference seen"), (99.99, "no difference seen"), (99.4, "worse")],
)
def test_what_is_shown_as_0_percent_is_no_difference(second: float, verdict: str) -> None:
    change = second / 100 - 1
    assert Difference("throughput", "op/s", 100, second, change, change, more_is_better=True).verdict == verdict


def test_slow_seconds_widen_the_interval(tmp_path: Path) -> None:
    steady = differences(compare(make_run(tmp_path / "a", 1), make_run(tmp_path / "b", 2)))["mean"]
    waves = differences(compare(make_run(tmp_path / "c", 1, waves=20.0), make_run(tmp_path / "d", 2, waves=20.0)))[
        "mean"
    ]
    assert waves.high - waves.low > 2 * (steady.high - steady.low)


def test_what_cannot_be_compared_is_reported(tmp_path: Path) -> None:
    first, few = make_run(tmp_path / "a", 1), make_run(tmp_path / "b", 2, rate=0.5)
    assert compare(first, few)[0].note == "too few operations went well (10) to compare"
    assert "main/write: too few" in as_text(first, few, compare(first, few))
    with pytest.raises(RunError, match="no operation in common"):
        compare(first, Run(few.info, Tally(), few.folder))
