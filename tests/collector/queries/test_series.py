"""Answers about a series, against its summaries added up in the plainest way."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from collector.queries.series import (
    MOST_COLUMNS,
    SHARES,
    STEPS_NS,
    Choice,
    PeriodState,
    SeriesView,
    open_series,
    step_of,
)
from collector.series.series import Series
from collector.series.summaries import MINUTE_NS, merge_requests, read_summary
from testkit.days import BEGIN_NS, DAY_NS, HOUR_NS, DaysRecipe, add_hours, write_days
from tests.helpers.histograms import percentile_ns
from tracer.errors import InputError

RECIPE = DaysRecipe(
    hours=30, classes=3, per_minute=40, slow_hour=12, failed_hours=(5,), nothing_hours=(7, 8), idle_hours=(10,)
)
END_NS = BEGIN_NS + RECIPE.hours * HOUR_NS


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("days") / "series"
    write_days(place, RECIPE)
    return place


@pytest.fixture(scope="module")
def series(place: Path) -> SeriesView:
    return SeriesView(place)


def requests_of(place: Path) -> pl.DataFrame:
    """All rows of `requests`, with the hour of each."""
    series = Series(place)
    tables = [
        read_summary(series.summary_place(entry.period), "requests") for entry in series.entries() if not entry.problem
    ]
    return pl.concat(tables)


@pytest.mark.parametrize("step_ns", STEPS_NS)
def test_columns_add_up_to_the_summaries_at_every_width(place: Path, series: SeriesView, step_ns: int) -> None:
    width = (MOST_COLUMNS - 2) * step_ns
    part = series.part(BEGIN_NS, BEGIN_NS + width, Choice())
    assert part.step_ns == step_ns
    until_ns = part.from_ns + len(part.covered_ns) * step_ns
    rows = requests_of(place).filter("is_client", pl.col("minute_trace_ns") < until_ns)
    merged = merge_requests(
        rows.with_columns(column=(pl.col("minute_trace_ns") - part.from_ns) // step_ns), ["column"]
    ).sort("column")
    counts = np.zeros(len(part.covered_ns), np.int64)
    counts[merged["column"].to_numpy()] = merged["requests_count"].to_numpy()
    assert part.total.counts.tolist() == counts.tolist()
    assert part.total.failed.sum() == rows["failed_count"].sum() > 0
    assert sum(each.counts.sum() for each in part.courses) == counts.sum()
    for row in merged.head(40).iter_rows(named=True):
        expected = [percentile_ns(row["duration_buckets"], row["duration_counts"], share) for share in SHARES]
        assert part.total.percentiles_ns[:, row["column"]].tolist() == pytest.approx(expected)
    assert part.hops.sum() == 20 * RECIPE.per_minute * part.covered_ns.sum() // MINUTE_NS
    assert np.isnan(part.total.percentiles_ns[:, counts == 0]).all()


def test_what_has_no_summary_is_no_zero(series: SeriesView) -> None:
    part = series.part(BEGIN_NS, BEGIN_NS + 12 * HOUR_NS, Choice())
    covered = [part.covered_ns[hour * 12 : hour * 12 + 12].sum() / HOUR_NS for hour in range(12)]
    counts = [part.total.counts[hour * 12 : hour * 12 + 12].sum() for hour in range(12)]
    assert covered == [1, 1, 1, 1, 1, 0, 1, 0, 0, 1, 1, 1]
    assert [hour for hour in range(12) if not counts[hour]] == [5, 7, 8, 10]
    assert series.part(BEGIN_NS, END_NS + 20 * DAY_NS, Choice()).covered_ns.sum() == (RECIPE.hours - 3) * HOUR_NS


def test_periods_are_of_four_states(place: Path, tmp_path: Path) -> None:
    view = SeriesView(write_days(tmp_path / "series", RECIPE).place)
    hours = [((each.from_ns - BEGIN_NS) // HOUR_NS, str(each.state)) for each in view.stretches()]
    assert hours == [(0, "summary"), (5, "failed"), (6, "summary"), (7, "nothing"), (9, "summary")]
    failed = view.stretches()[1]
    assert failed.problem == "the collector had no room on its disk"
    facts = view.facts(Series(place).entries()[5].period.name)
    assert facts is not None
    assert (facts.stretch.state, facts.classes) == (PeriodState.FAILED, ())
    assert view.facts("20200101T000000Z") is None


def test_a_choice_leaves_the_other_classes_out(place: Path, series: SeriesView) -> None:
    classes = series.classes()
    assert [each.words for each in classes] == [
        "GET at swift-proxy on proxy1",
        "PUT at swift-proxy on proxy2",
        "HEAD at swift-proxy on proxy1",
    ]
    rows = requests_of(place)
    for choice, chosen in (
        (Choice(server_host="proxy2"), (pl.col("server_host") == "proxy2")),
        (Choice(number=classes[2].number), (pl.col("method") == "HEAD") & pl.col("is_client")),
        (Choice(inner=True), ~pl.col("is_client")),
    ):
        part = series.part(BEGIN_NS, END_NS, choice)
        assert part.total.counts.sum() == rows.filter(chosen)["requests_count"].sum() > 0
    assert series.part(BEGIN_NS, END_NS, Choice(server_host="proxy2")).classes_count == 1
    assert len(series.part(BEGIN_NS, END_NS, Choice(), most_courses=2).courses) == 2


def test_the_slow_minutes_are_those_of_the_incident(series: SeriesView) -> None:
    worst = series.worst(Choice())
    assert len({each.minute_ns for each in worst}) == len(worst)
    incident = {BEGIN_NS + 12 * HOUR_NS + minute * MINUTE_NS for minute in range(20, 40)}
    assert {each.minute_ns for each in worst[:15]} <= incident
    assert worst[0].words == "GET at swift-proxy on proxy1"
    assert worst[0].p99_ns > 4 * worst[0].usual_p99_ns
    assert all(each.requests_count >= 20 for each in worst)
    assert not {each.minute_ns for each in series.worst(Choice(server_host="proxy2"))} & incident


def test_what_a_summary_knows_of_its_period(place: Path, series: SeriesView) -> None:
    facts = series.facts(Series(place).entries()[10].period.name)  # the hour of the incident: two have no entry
    assert facts is not None
    assert facts.stretch.from_ns == BEGIN_NS + 12 * HOUR_NS
    assert facts.classes[0][0] == "GET at swift-proxy on proxy1"
    assert facts.findings[0][:2] == ("warning", "storage1")
    hour = requests_of(place).filter(
        pl.col("minute_trace_ns") // HOUR_NS * HOUR_NS == facts.stretch.from_ns, "is_client"
    )
    assert sum(line[1] for line in facts.classes) == hour["requests_count"].sum()
    assert dict(facts.ledger_ns)["work_ns"] == hour["work_ns"].sum()
    short = series.facts(Series(place).entries()[10].period.name, most_classes=1)
    assert short is not None
    assert (len(short.classes), short.left_out_count) == (1, 2)
    assert short.requests_count == hour["requests_count"].sum()


def test_a_series_is_followed_as_it_grows_and_as_traces_go(tmp_path: Path) -> None:
    recipe = replace(RECIPE, hours=6, failed_hours=(), nothing_hours=())
    series = write_days(tmp_path / "series", recipe)
    view = SeriesView(series.place)
    before = view.part(BEGIN_NS, BEGIN_NS + 6 * HOUR_NS, Choice()).total.counts.sum()
    assert view.refresh() == view.version == 1
    add_hours(series, replace(recipe, hours=8), 6)
    assert view.refresh() == 2
    assert view.span == (BEGIN_NS, BEGIN_NS + 8 * HOUR_NS)
    after = view.part(BEGIN_NS, BEGIN_NS + 8 * HOUR_NS, Choice()).total.counts
    assert view.part(BEGIN_NS, BEGIN_NS + 6 * HOUR_NS, Choice()).total.counts.sum() == before < after.sum()
    for hours in (40, 400):  # also in the coarser steps, which are kept
        wide = view.part(BEGIN_NS, BEGIN_NS + hours * HOUR_NS, Choice())
        assert wide.total.counts.sum() == after.sum()
    first, second = (entry.period.name for entry in series.entries()[:2])
    assert view.neighbour(first, backwards=True) is None
    found = view.neighbour(first, backwards=False)
    assert found is not None
    assert found.period.name == second


def test_a_summary_that_cannot_be_read_is_a_gap_with_a_reason(tmp_path: Path) -> None:
    series = write_days(tmp_path / "series", replace(RECIPE, hours=3, failed_hours=(), nothing_hours=()))
    (series.summary_place(series.entries()[1].period) / "requests.parquet").write_bytes(b"PAR1")
    view = SeriesView(series.place)
    part = view.part(BEGIN_NS, BEGIN_NS + 3 * HOUR_NS, Choice())
    assert [part.covered_ns[hour * 60 : hour * 60 + 60].sum() // HOUR_NS for hour in range(3)] == [1, 0, 1]
    assert "cannot be read" in view.stretches()[1].problem
    with pytest.raises(InputError, match="cannot be read"):
        view.facts(series.entries()[1].period.name)


def test_a_series_without_periods_has_no_span(tmp_path: Path) -> None:
    Series.make(tmp_path / "series", HOUR_NS)
    view = open_series(str(tmp_path / "series"))
    assert view is not None
    assert (view.span, view.stretches(), view.worst(Choice()), view.classes()) == (None, (), (), ())
    assert view.part(BEGIN_NS, BEGIN_NS + HOUR_NS, Choice()).covered_ns.sum() == 0
    assert open_series(str(tmp_path)) is None


@pytest.mark.parametrize("width_ns", [MINUTE_NS, HOUR_NS, 9 * HOUR_NS, 3 * DAY_NS, 30 * DAY_NS, 400 * DAY_NS])
def test_no_width_needs_more_than_the_most_columns(series: SeriesView, width_ns: int) -> None:
    part = series.part(BEGIN_NS + 59, BEGIN_NS + 59 + width_ns, Choice())
    assert part.step_ns == step_of(0, width_ns)
    assert 1 <= len(part.covered_ns) <= MOST_COLUMNS
    assert part.from_ns <= BEGIN_NS + 59
    assert part.from_ns + len(part.covered_ns) * part.step_ns >= BEGIN_NS + 59 + width_ns
