"""Two groups of requests, by stage: what differs is named, and noise is not."""

import numpy as np
import polars as pl
import pytest

from collector.reporting import stage_times
from collector.reporting.comparison import Comparison, compare, slow_against_typical
from collector.reporting.stage_times import StageRows, request_stages
from collector.requests.spans import link
from tests.helpers.exchange_lines import exchanges_of

Stages = dict[str, np.ndarray]


def requests(stages: Stages, kind: str = "PUT at swift-proxy", first_id: int = 0) -> pl.DataFrame:
    """A row for each request and stage; durations in µs, by stage."""
    rows = [
        (first_id + number, kind, first_id + number, stage, int(took * 1_000))
        for stage, durations in stages.items()
        for number, took in enumerate(durations)
        if took
    ]
    types = {
        "trace_id": pl.Int64, "kind": pl.String, "request": pl.UInt32, "stage": pl.String, "duration_ns": pl.Int64
    }  # fmt: skip
    return pl.DataFrame(rows, types, orient="row")


def noise(seed: int, mean_us: float, count: int = 300) -> np.ndarray:
    return np.random.default_rng(seed).exponential(mean_us, count)


def significant_stages(comparison: Comparison) -> list[tuple[str, str]]:
    return [(each.kind, each.stage) for each in comparison.significant]


@pytest.mark.parametrize("at_once", [500_000, 1])
def test_stages_add_up_to_each_request(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_times, "ADDED_AT_ONCE", at_once)
    exchanges = exchanges_of(
        """
        client > proxy/swift-proxy       0  10 290 300 connect=-20 method=PUT tx=a
        proxy > storage1/swift-object   50  55 190 200 connect=40 tx=a
        proxy > storage2/swift-object   50  55 140 150 connect=40 tx=a
        client > proxy/swift-proxy     400 410 490 500 method=GET tx=b
        """
    )
    stages = request_stages(link(exchanges), exchanges)
    table = {(row[0], row[1], row[3]): row[4] // 1000 for row in stages.iter_rows()}
    put = {stage: took for (root, kind, stage), took in table.items() if (root, kind) == (1, "PUT at swift-proxy")}
    assert put["uplink to swift-proxy"] == 10
    assert put["network to and from swift-object"] == 5
    assert put["slower of parallel calls to swift-object"] == 50
    assert sum(put.values()) == 320
    assert sum(took for (root, _, _), took in table.items() if root == 4) == 100
    assert set(stages["trace_id"]) == {1, 4}


def test_requests_are_numbered_by_the_time_at_which_they_began() -> None:
    exchanges = exchanges_of(
        """
        client > web/web  900 910 920 930
        client > web/web  100 110 120 130
        client > web/web  500 510 520 530
        """
    )
    numbers = request_stages(link(exchanges), exchanges).select("trace_id", "request").unique().sort("request")
    began = dict(zip(exchanges["exchange_id"].to_pylist(), [900, 100, 500], strict=True))
    assert [began[each] for each in numbers["trace_id"]] == [100, 500, 900]
    assert numbers["request"].to_list() == [0, 1, 2]


def test_a_stage_that_takes_longer_is_named_and_no_other() -> None:
    before = {"work in proxy": noise(1, 300), "work in object": noise(2, 1000)}
    after = {"work in proxy": noise(3, 300), "work in object": noise(4, 1600)}
    found = compare(requests(before), requests(after), "before", "after")
    assert significant_stages(found) == [("PUT at swift-proxy", "work in object")]
    (kind,) = found.kinds
    (difference,) = found.significant
    true_ns = 1000 * (after["work in object"].mean() - before["work in object"].mean())
    assert difference.difference_ns == pytest.approx(true_ns, abs=1000)
    assert abs(difference.difference_ns - 600_000) < 2 * difference.uncertainty_ns
    assert sum(stage.difference_ns for stage in kind.stages) == pytest.approx(
        kind.second.mean_ns - kind.first.mean_ns, abs=2
    )


def test_another_mix_of_requests_is_no_difference() -> None:
    def puts_and_gets(puts: int, gets: int, seed: int) -> pl.DataFrame:
        put = requests({"work": noise(seed, 5000, puts)})
        return pl.concat([put, requests({"work": noise(seed + 1, 500, gets)}, "GET at swift-proxy", puts)])

    found = compare(puts_and_gets(50, 300, 5), puts_and_gets(300, 50, 7), "a", "b")
    assert significant_stages(found) == []
    assert {kind.kind for kind in found.kinds} == {"PUT at swift-proxy", "GET at swift-proxy"}


def test_requests_that_are_slow_together_are_not_independent() -> None:
    """A queue that comes and goes: runs of the same system, of which a test of each request finds most different."""

    def run(seed: int) -> Stages:
        rng = np.random.default_rng(seed)
        walk = np.zeros(2_000)
        for at in range(1, len(walk)):
            walk[at] = 0.97 * walk[at - 1] + rng.normal()
        return {"queue": np.maximum(1, 5_000 + 100 * walk)}

    groups = [requests(run(seed)) for seed in range(20)]
    pairs = list(zip(groups[::2], groups[1::2], strict=True))
    wrong = sum(bool(compare(first, second, "a", "b").significant) for first, second in pairs)
    assert wrong <= 1


def test_slow_against_typical_names_what_makes_them_slow() -> None:
    rare = np.where(np.arange(400) % 17 == 0, 9_000, 0) + noise(11, 20, 400)
    stages = requests({"work in proxy": noise(10, 300, 400), "retransmission": rare})
    found = slow_against_typical(StageRows(stages))
    assert (found.first, found.second) == ("typical", "slow")
    assert found.significant[0].stage == "retransmission"
    assert found.kinds[0].second.requests_count == 20
    assert found.kinds[0].first.requests_count == 200


def test_too_few_to_judge_are_left_out() -> None:
    few, many = requests({"work": noise(12, 10, 4)}), requests({"work": noise(13, 1000, 400)})
    found = compare(few, many, "a", "b")
    assert found.kinds == ()
    assert found.left_out == ("PUT at swift-proxy",)
    (kind,) = found.untested
    assert [(kind.first.requests_count, kind.second.requests_count)] == [(4, 400)]
    assert kind.stages[0].difference_ns == pytest.approx(kind.second.mean_ns - kind.first.mean_ns, abs=2)
    assert found.significant == ()


def test_a_kind_of_one_group_only_is_not_shown_beside_nothing() -> None:
    found = compare(requests({"work": noise(12, 10, 4)}), requests({}), "a", "b")
    assert (found.kinds, found.untested) == ((), ())


def test_nothing_to_compare() -> None:
    assert compare(requests({}), requests({}), "a", "b") == Comparison("a", "b", (), ())


def test_a_difference_that_varies_widely_has_no_interval_with_zero_in_it() -> None:
    before, steady = np.full(300, 1_000.0), np.full(300, 1_500.0)
    steady += np.arange(300) % 7
    wide = steady.copy()
    wide[17] = 3_000_000
    for after, expected in ((steady, "+503.0 µs ± "), (wide, "+10.5 ms on average, varying widely")):
        found = compare(requests({"work": before}), requests({"work": after}), "before", "after")
        [difference] = found.significant
        assert difference.in_words.startswith(expected)
        assert difference.varies_widely is (after is wide)
        assert "± " not in difference.in_words or difference.uncertainty_ns < difference.difference_ns
