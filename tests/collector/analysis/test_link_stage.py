"""A long trace, linked section by section, has the spans that it has when it is linked whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.analysis import AnalysisOptions, analyse
from collector.analysis.link_stage import Linking
from collector.analysis.period import options_of_period
from collector.analysis.places import HerePlaces, Places, SharedPlaces
from collector.decode.sources import host_sources
from collector.execution.engine import Tables
from collector.requests import sections
from collector.requests.sections import Cuts
from collector.requests.spans import link, spans_of
from collector.trace.reading import Trace
from collector.trace.schema import SILENCES
from testkit.tables import table
from tests.collector.analysis.test_period import OF_REQUESTS, cut_times, frame
from tests.collector.analysis.test_shared_places import BUNDLED, PicklingEngine
from tests.collector.analysis.test_shared_places import assert_same as assert_same_bytes
from tests.helpers.exchange_lines import at_us, exchanges_of

OTHERS = [f"other > h9 {at} {at + 1} {at + 8} {at + 9} tx=x{at}" for at in range(100, 200, 10)]
NEAR_AND_FAR = (Cuts(4, 2, 0), Cuts(6, 6, 0))


class TablesInMemory:
    """Keeps tables as they are."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[pa.Table, ...]] = {}

    def put(self, number: int, *tables: pa.Table) -> None:
        self._held[number] = tables

    def look(self, number: int) -> tuple[pa.Table, ...]:
        return self._held[number]

    take = look


class PlainRows:
    """Encodes nothing: rows stay a table."""

    def encode(self, name: str, table: pa.Table) -> pa.Table:
        assert name == "spans"
        return table


class InOrder:
    """Does all work here, one part after the other."""

    def run(self, work: Callable[[int], Any], parts: Any, store: Callable[[int, Any], None], **_: bool) -> None:
        for number in parts:
            store(number, work(number))


class MemoryPlaces:
    """Places for links alone."""

    engine, encoder = InOrder(), PlainRows()

    def more_tables(self, name: str) -> Tables:
        assert name
        return TablesInMemory()


def spans_by_section(exchanges: pa.Table, cuts: Cuts, silences: pa.Table | None = None) -> pa.Table:
    found: list[Any] = []
    silent = SILENCES.empty_table() if silences is None else silences
    parts = [exchanges.slice(0, 3), exchanges.slice(3)]
    Linking(silent, MemoryPlaces(), cuts, None, found.append).link(parts)  # type: ignore[arg-type]
    return pa.concat_tables([part.rows for part in found])


def assert_same(exchanges: pa.Table, cuts: Cuts) -> None:
    found, expected = spans_by_section(exchanges, cuts), link(exchanges)
    assert pl.DataFrame(found).equals(pl.DataFrame(expected))


@st.composite
def forests(draw: st.DrawFn) -> str:
    """Requests with ids and what is called for them, in lines; some roots last for all of the trace."""
    lines: list[tuple[int, str]] = []

    def calls(host: int, begin: int, end: int, name: str, depth: int) -> None:
        for _ in range(draw(st.integers(0, 3)) if depth < 4 and end - begin > 20 else 0):
            first = draw(st.integers(begin + 1, end - 12))
            last = draw(st.integers(first + 8, end - 1))
            line = f"h{host} > h{host + 1} {first} {first + 2} {last - 2} {last} tx={name}"
            lines.append((first, line))
            calls(host + 1, first + 2, last - 2, name, depth + 1)

    for number in range(draw(st.integers(1, 6))):
        begin = draw(st.integers(0, 2_000))
        end = begin + draw(st.sampled_from([60, 500, 4_000]))
        lines.append((begin, f"client > h0 {begin} {begin + 3} {end - 3} {end} tx=t{number} connect={begin - 4}"))
        calls(0, begin + 3, end - 3, f"t{number}", 1)
    return "\n".join(line for _, line in sorted(lines))


@given(forests(), st.integers(1, 9), st.integers(0, 2))
def test_trees_over_edges_are_whole(lines: str, rows: int, around: int) -> None:
    assert_same(exchanges_of(lines), Cuts(rows, min(rows, 1 + around), 0))


@pytest.mark.parametrize("rows", range(1, 8))
def test_a_tree_that_reaches_over_many_sections(rows: int) -> None:
    """Its root and the first call begin in the first section, the innermost calls in the last."""
    lines = ["client > h0 0 5 990 1000 tx=a", "h0 > h1 10 15 900 905 tx=a"]
    lines += [f"other > h9 {at} {at + 1} {at + 8} {at + 9} tx=x{at}" for at in range(20, 800, 40)]
    lines += ["h1 > h2 820 825 850 855 tx=a", "h2 > h3 830 832 840 842 tx=a", "h0 > h3 910 912 940 942 tx=a"]
    exchanges = exchanges_of("\n".join(lines))
    assert_same(exchanges, Cuts(rows, 1, 0))
    spans = pl.DataFrame(spans_by_section(exchanges, Cuts(rows, 1, 0)))
    assert spans.filter(trace_id=1)["depth"].to_list() == [0, 1, 2, 3, 1]


def test_a_parent_that_comes_after_its_call() -> None:
    """By a clock error the call's arrival is the earlier stamp; by the host that made it, it is the later."""
    exchanges = exchanges_of("h0 > h1 6 2 30 36 tx=a\n- > h0 - 5 40 50 tx=a\nother > h9 60 61 70 72 tx=b")
    for rows in (1, 2):
        assert_same(exchanges, Cuts(rows, 1, 0))
    assert pl.DataFrame(spans_by_section(exchanges, Cuts(1, 1, 0)))["trace_id"].to_list() == [2, 2, 3]


def test_what_is_put_together_has_no_exchange_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that was taken out of the section before is seen before this one, too."""
    seen: list[int] = []

    def note_ids(columns: pa.Table, *more: Any) -> pa.Table:
        ids = columns["exchange_id"].to_pylist()
        assert len(set(ids)) == len(ids)
        seen.append(len(ids))
        return spans_of(columns, *more)

    monkeypatch.setattr(sections, "spans_of", note_ids)
    spans_by_section(exchanges_of("h0 > h1 6 2 30 36 tx=a\n- > h0 - 5 40 50 tx=a"), Cuts(1, 1, 0))
    assert seen == [1, 2]


def test_a_request_that_was_never_answered_is_open() -> None:
    lines = ["client > h0 0 5 - - tx=a", *OTHERS, "h0 > h1 300 305 310 315 tx=a"]
    assert_same(exchanges_of("\n".join(lines)), Cuts(3, 1, 0))


def test_of_requests_that_are_never_answered_the_latest_are_seen() -> None:
    """A call finds its parent among the latest; not where more have come since."""
    waiting = [f"client > h0 {at} {at + 1} - - tx=w{at}" for at in range(6)]
    exchanges = exchanges_of("\n".join([*waiting, *OTHERS, "h0 > h1 300 305 310 315 tx=w3"]))
    found = [spans_by_section(exchanges, Cuts(4, 1, 0, most_open)) for most_open in (3, 2)]
    assert [pl.DataFrame(spans)["parent_span_id"][-1] for spans in found] == [4, None]


@pytest.mark.parametrize("root", ["client > h0 0 5 90000 95000 tx=a", "- > h0 - 15 90000 95000 tx=a"])
def test_silences_go_with_their_exchanges(root: str) -> None:
    """A call paused in its answer while its own call was still answering, so the time is that one's; the root is in
    another section, before it or (by a clock error) behind it."""
    call, below = "h0 > h1 20 10 20000 80000 tx=a first=20500", "h1 > h2 100 105 60000 70000 tx=a first=60500"
    exchanges = exchanges_of("\n".join([root, call, below] if root.startswith("client") else [call, root, below]))
    of, name = (2 if root.startswith("client") else 1), "response_silent_idle_ns"
    spent = pa.array([50_000_000 if each == of else 0 for each in (1, 2, 3)])
    exchanges = exchanges.set_column(exchanges.schema.get_field_index(name), name, spent)
    times = {"from_trace_ns": at_us("21000"), "to_trace_ns": at_us("71000")}
    silences = table("silences", [{"exchange_id": of, "in_response": True, "cause": "idle"} | times])
    whole = pl.DataFrame(link(exchanges, silences))
    assert whole.row(2, named=True)["critical_ns"] > 30_000_000 > pl.DataFrame(link(exchanges))["critical_ns"][2]
    for rows in (1, 2):
        assert pl.DataFrame(spans_by_section(exchanges, Cuts(rows, 1, 0), silences)).equals(whole)


@pytest.mark.parametrize(("rows", "others"), [(1, 0), (2, 3), (1, 4)])
def test_a_connection_that_was_opened_in_advance(rows: int, others: int) -> None:
    """Meanwhile its client asked the same server, which only exchanges of a section before it show."""
    lines = ["client > h0/x 0 5 300000 300005 tx=a", *OTHERS[:others], "client > h0/x 200000 200005 200010 200015 tx=b"]
    exchanges = exchanges_of("\n".join(lines) + " connect=-20 connected=-10")
    assert link(exchanges)["pause_ns"].to_pylist()[-1] == 0
    assert_same(exchanges, Cuts(rows, 1, 0))


def test_what_is_not_seen_with_a_section_is_no_parent() -> None:
    """Work that was put off until its request had long ended; where that is in sight, it is its parent."""
    lines = ["client > h0 0 5 40 50 tx=a", *OTHERS, "h0 > h1 300 305 310 315 tx=a"]
    exchanges = exchanges_of("\n".join(lines))
    parents = [pl.DataFrame(spans_by_section(exchanges, cuts))["parent_span_id"][-1] for cuts in NEAR_AND_FAR]
    assert parents == [None, 1]


def test_a_short_trace_is_linked_whole() -> None:
    """Of as many sections as are not worth the cuts; one more, and work that was put off has no parent."""
    lines = ["client > h0 0 5 40 50 tx=a", *OTHERS, "h0 > h1 300 305 310 315 tx=a"]
    exchanges = exchanges_of("\n".join(lines))
    assert exchanges.num_rows == 12
    whole, cut = (pl.DataFrame(spans_by_section(exchanges, Cuts(4, 1, most)))["parent_span_id"] for most in (3, 2))
    assert (whole[-1], cut[-1]) == (1, None)


def test_no_request_at_all() -> None:
    assert spans_by_section(exchanges_of(""), Cuts(4, 2, 0)).num_rows == 0


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_capture_section_by_section(tmp_path: Path, *, is_shared: bool) -> None:
    """The same trace, here and in other processes; silences go where their exchanges go."""
    sources, cuts = host_sources([str(BUNDLED)]), Cuts(12, 12, 0)
    analyse(sources, str(tmp_path / "whole"))
    place = str(tmp_path / "cut")
    places: Places = SharedPlaces(place, tmp_path, PicklingEngine()) if is_shared else HerePlaces(place)
    analyse(sources, place, options=AnalysisOptions(cuts=cuts), places=places)
    for name in ("exchanges", "spans", "silences", "findings"):
        assert frame(tmp_path / "cut", name).equals(frame(tmp_path / "whole", name)), name


def test_here_and_in_other_processes_the_bytes_are_the_same(tmp_path: Path) -> None:
    assert_same_bytes(tmp_path, [BUNDLED], AnalysisOptions(cuts=Cuts(7, 2, 0)))


def test_periods_section_by_section(tmp_path: Path) -> None:
    """Successive periods have each request once, whole, wherever the sections' edges are."""
    sources = host_sources([str(BUNDLED)])
    info = analyse(sources, str(tmp_path / "whole"))
    periods = cut_times(info, 3)
    for number, each in enumerate(periods):
        options = options_of_period(AnalysisOptions(cuts=Cuts(9, 9, 0)), each)
        analyse(sources, str(tmp_path / f"{number}"), options=options)
    for name, key in OF_REQUESTS.items():
        parts = [frame(tmp_path / f"{number}", name) for number in range(len(periods))]
        assert pl.concat(parts).sort(key).equals(frame(tmp_path / "whole", name).sort(key))


def test_what_was_read_back_is_what_was_linked(tmp_path: Path) -> None:
    """Spans are in the order of the exchanges, also where trees of several sections were put together."""
    analyse(host_sources([str(BUNDLED)]), str(tmp_path / "cut"), options=AnalysisOptions(cuts=Cuts(5, 3, 0)))
    trace = Trace(str(tmp_path / "cut"))
    exchanges = trace.read("exchanges", ["exchange_id", "is_stream"]).filter(pa.compute.field("is_stream") == False)  # noqa: E712
    assert trace.read("spans", ["span_id"])["span_id"].equals(exchanges["exchange_id"])
