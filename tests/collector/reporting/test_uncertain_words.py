"""What is said where clocks leave something open: a round trip as a whole, drift with its error bar or not at all."""

import polars as pl
import pytest

from collector.reporting.comparison import compare
from collector.reporting.report import _clock_words
from collector.reporting.stage_times import request_stages
from collector.reporting.story import _network, _uplink_and_downlink
from collector.requests.spans import link
from collector.trace.durations import with_uncertainty
from tests.helpers.exchange_lines import exchanges_of

MS, SECOND = 1_000_000, 1_000_000_000


def ways(*rows: tuple[int, int, int]) -> list[tuple[str, int, int]]:
    """Of requests: there, back, and how uncertain each is (ns)."""
    frame = pl.DataFrame(rows, ["request_network_ns", "response_network_ns", "uncertainty_ns"], orient="row")
    frame = frame.with_columns(likely_error_ns=pl.lit(None, pl.Int64))
    return [(part.label, part.duration_ns, part.uncertainty_ns) for part in _uplink_and_downlink("web", frame.lazy())]


def test_a_round_trip_whose_halves_are_open_is_said_as_a_whole() -> None:
    whole = "to web and back (both ways; which way is not known)"
    assert ways((25 * MS, 25_400_000, 25 * MS)) == [(whole, 50_400_000, 0), ("", 0, 0)]


@pytest.mark.parametrize(
    "row",
    [(25 * MS, 25 * MS, MS), (2_000, 2_000, 2_000), (25 * MS, 0, 25 * MS)],
    ids=["halves are known", "it hardly takes time", "one way only"],
)
def test_otherwise_each_way_is_said(row: tuple[int, int, int]) -> None:
    assert [duration for _, duration, _ in ways(row)] == list(row[:2])
    assert ways(row)[0][0] == "sending to web (uplink)"


@pytest.mark.parametrize(
    ("skew", "expected"),
    [(5_000, "1.0 ms ± 20.0 µs, drift +5,000 ± 4,000 ppb"), (3_000, "1.0 ms ± 20.0 µs"), (0, "1.0 ms ± 20.0 µs")],
)
def test_no_drift_is_claimed_inside_its_error_bar(skew: int, expected: str) -> None:
    row = {
        **{"reference": False, "method": "polygon", "offset_ns": MS, "uncertainty_ns": 20_000, "skew_ppb": skew},
        **{"from_host_ns": 0, "to_host_ns": 10 * SECOND, "likely_error_ns": None},
    }
    assert _clock_words([row], on_path=False) == expected


@pytest.mark.parametrize(
    ("uncertainty_ns", "likely_ns", "expected"),
    [
        (20_000, 1_500, "12.0 µs ± 1.5 µs (at most 20.0 µs)"),
        (20_000, 20_000, "12.0 µs ± 20.0 µs"),
        (20_000, None, "12.0 µs ± 20.0 µs"),
        (0, 0, "12.0 µs"),
    ],
    ids=["both", "no better than the bound", "a trace without it", "one clock"],
)
def test_the_likely_error_stands_before_the_bound(uncertainty_ns: int, likely_ns: int | None, expected: str) -> None:
    assert with_uncertainty(12_000, uncertainty_ns, likely_ns) == expected


def test_the_errors_of_several_requests_add_up_and_an_unknown_one_is_the_bound() -> None:
    rows = [(30_000, 10_000, 1_000), (20_000, 10_000, None), (0, 10_000, 1_000)]
    frame = pl.DataFrame(rows, ["request_network_ns", "uncertainty_ns", "likely_error_ns"], orient="row")
    part = _network("to web", frame.lazy(), pl.col("request_network_ns"))
    assert part.words == "50.0 µs ± 11.0 µs (at most 20.0 µs)"


def stages(uncertainty_ns: int, first_id: int = 0) -> pl.DataFrame:
    """Of some requests with 25 ms there and 26 ms back."""
    lines = [
        f"client > web/web {at} {at + 25_000} {at + 30_000} {at + 56_000} uncertainty={uncertainty_ns}"
        for at in range(first_id, first_id + 1_000_000, 100_000)
    ]
    exchanges = exchanges_of("\n".join(lines))
    return request_stages(link(exchanges), exchanges)


def test_the_stage_table_has_a_round_trip_as_one_row_where_its_split_is_open() -> None:
    found = stages(25 * MS).group_by("stage").agg(pl.col("duration_ns").mean())
    assert dict(found.iter_rows()) == {
        "to web and back (both ways; which way is not known)": 51 * MS,
        "work in web": 5 * MS,
    }


def test_the_stage_table_has_each_way_where_the_clocks_allow_it() -> None:
    assert set(stages(MS)["stage"]) == {"uplink to web", "downlink from web", "work in web"}


def test_two_traces_are_compared_by_what_both_know() -> None:
    (kind,) = compare(stages(25 * MS), stages(MS), "before", "after").kinds
    assert {stage.stage: stage.difference_ns for stage in kind.stages} == {
        "to web and back (both ways; which way is not known)": 0,
        "work in web": 0,
    }
