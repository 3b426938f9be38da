"""Links requests and makes the table `spans`: of a long trace section by section, wherever the analysis runs.

`collector.requests.sections` explains sections. Their tables are kept in files, and each step is work on one section:

1. this process cuts the merged exchanges into sections;
2. `FindLinks`: the parents of a section's own exchanges;
3. this process follows the links that lead from one section to another;
4. `TakeOut`: what a section holds of trees that belong to others;
5. `MakeSpans`: the spans of all trees that belong to a section;
6. `Gather`: the spans of a section's own exchanges, encoded in the order of the table.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TypeVar

import numpy as np
import pyarrow as pa
from msgspec import Struct

from collector.analysis.period import PeriodEdges
from collector.analysis.places import Places
from collector.execution import memory
from collector.execution.engine import Tables
from collector.execution.ordered_pool import with_work_behind
from collector.requests.critical_path import NONE
from collector.requests.linking_columns import linking_columns
from collector.requests.sections import (
    ROW,
    Cuts,
    LinksOut,
    MovedTrees,
    Section,
    Trees,
    cut,
    links_of_section,
    local_roots,
    owner_of_rows,
    owners,
    rows_between,
    seen_with,
    silences_of,
    spans_of_section,
)
from collector.requests.spans import link_columns
from collector.trace.arrow import coalesce, numbers
from collector.trace.table_store import ROW_GROUP_ROWS, EncodedRows
from collector.trace.time_columns import Int64Array
from collector.trace.writing import RowEncoder

Result = TypeVar("Result")
OWNER = "owner"
SECTIONS_AT_ONCE = 2
"""In one process: each takes up to 560 MiB, and what it does on one thread keeps another core busy."""
HOSTS = ("client_host", "server_host")
NO_IDS: Int64Array = np.empty(0, np.int64)


class SpansOfPart(Struct, frozen=True):
    """Successive rows of the table `spans`."""

    rows: EncodedRows
    ids: Int64Array  # of a period's trace the exchanges that have these spans; else empty


class Sections(Struct, frozen=True):
    """The sections of one trace, and what is kept of each."""

    cuts: Cuts
    count: int
    rows_count: int
    columns: Tables  # its own exchanges, those open before, the silences of its own
    links: Tables
    away: Tables  # of trees that belong to others: exchanges with `OWNER`, links, silences
    spans: Tables  # of the trees that belong to it, with `ROW`

    def own(self, number: int) -> range:
        """The rows that a section owns."""
        return self.cuts.own(number, self.rows_count)

    def section(self, number: int) -> Section | None:
        """A section before links; None beyond the ends of the trace."""
        if not 0 <= number < self.count:
            return None
        own, opened, _ = self.columns.look(number)
        return Section(own, opened)

    def all_of(self, number: int) -> Trees:
        """All exchanges of a section, with their links."""
        own, _, silences = self.columns.look(number)
        return Trees(own, self.links.look(number)[0], silences)

    def owner(self, number: int, moved: Mapping[int, MovedTrees]) -> Int64Array:
        """The section to which the tree of each row of a section belongs."""
        parent = numbers(self.links.look(number)[0]["parent"])
        return owner_of_rows(parent, self.own(number), moved.get(number), number)


class FindLinks(Struct, frozen=True):
    """Finds the parents of a section's exchanges; returns the links that lead out of it."""

    sections: Sections

    def __call__(self, number: int) -> LinksOut:
        """The work on one section."""
        of = self.sections
        before, section, after = (of.section(each) for each in (number - 1, number, number + 1))
        assert section is not None
        links, leaving = links_of_section(seen_with(before, section, after, of.cuts), of.own(number))
        of.links.put(number, links)
        memory.give_back_if_much()
        return leaving


class TakeOut(Struct, frozen=True):
    """Takes out what a section holds of trees that belong to others."""

    sections: Sections
    moved: Mapping[int, MovedTrees]

    def __call__(self, number: int) -> None:
        """The work on one section."""
        of = self.sections
        owner = of.owner(number, self.moved)
        rows = np.flatnonzero(owner != number)
        trees = of.all_of(number).some(rows)
        of.away.put(number, trees.columns.append_column(OWNER, pa.array(owner[rows])), trees.links, trees.silences)


class MakeSpans(Struct, frozen=True):
    """Makes the spans of all trees that belong to a section; of a period's trace, those that began in the period."""

    sections: Sections
    moved: Mapping[int, MovedTrees]
    edges: PeriodEdges | None

    def __call__(self, number: int) -> None:
        """The work on one section."""
        of, section = self.sections, self.sections.section(number)
        assert section is not None
        before = of.section(number - 1)
        tail = [] if before is None else [of.cuts.tail(before.own)]
        is_owned = of.owner(number, self.moved) == number
        foreign = [self._foreign(number, other) for other, each in self.moved.items() if (each.owner == number).any()]
        spans, ends = spans_of_section(of.all_of(number), is_owned, foreign, [section.opened, *tail])
        spans = spans.append_column(ROW, ends[ROW])
        of.spans.put(number, spans if self.edges is None else spans.filter(self.edges.hold_trees(spans, ends)))
        memory.give_back_if_much()

    def _foreign(self, number: int, other: int) -> Trees:
        """What another section holds of this one's trees."""
        columns, links, silences = self.sections.away.look(other)
        trees = Trees(columns, links, silences).some(np.flatnonzero(numbers(columns[OWNER]) == number))
        return Trees(trees.columns.drop_columns([OWNER]), trees.links, trees.silences)


class Gather(Struct, frozen=True):
    """Encodes the spans of a section's own exchanges."""

    sections: Sections
    moved: Mapping[int, MovedTrees]
    encoder: RowEncoder
    with_ids: bool

    def __call__(self, number: int) -> SpansOfPart:
        """The work on one section."""
        of, moved = self.sections, self.moved.get(number)
        places = [number, *([] if moved is None else np.unique(moved.owner).tolist())]
        mine = pa.concat_tables([rows_between(of.spans.look(place)[0], of.own(number)) for place in places])
        rows = numbers(mine[ROW])
        if (rows[1:] < rows[:-1]).any():
            mine = mine.take(pa.array(np.argsort(rows)))
        return _encode_spans(mine.drop_columns([ROW]), self.encoder, with_ids=self.with_ids)


class Linking(Struct, frozen=True):
    """Links the requests of one trace; `store` is called with each part of the table `spans`, in its order."""

    silences: pa.Table  # of all requests
    places: Places
    cuts: Cuts
    edges: PeriodEdges | None  # of a period, whose requests alone get spans
    store: Callable[[SpansOfPart], None]

    def link(self, requests: Iterable[pa.Table]) -> None:
        """The spans of all requests. Arguments: parts of the table `exchanges` without streams.

        Raises: as `Engine.run`.
        """
        sections = cut(chain([linking_columns([])], (linking_columns([part]) for part in requests)), self.cuts)
        begun = [*islice(sections, self.cuts.most_whole + 1)]
        if len(begun) > self.cuts.most_whole:
            self._link_sections(chain(_taken_from(begun), sections))
            return
        columns = [pa.concat_tables([section.own for section in begun]).unify_dictionaries().drop_columns([ROW])]
        begun.clear()
        self._link_whole(columns)

    def _link_whole(self, columns: list[pa.Table]) -> None:
        """Link a trace whole. Arguments: a list with the columns, which are taken from it."""
        ends = columns[0].select(HOSTS)
        spans = link_columns(columns, self.silences)
        if self.edges is not None:
            spans = spans.filter(self.edges.hold_trees(spans, ends))
        for begin in range(0, max(1, spans.num_rows), ROW_GROUP_ROWS):
            part = spans.slice(begin, ROW_GROUP_ROWS)
            self.store(_encode_spans(part, self.places.encoder, with_ids=self.edges is not None))

    def _link_sections(self, found: Iterable[Section]) -> None:
        """Link a trace section by section."""
        sections = self._put_sections(found)
        every, leaving, with_ids = range(sections.count), list[LinksOut](), self.edges is not None
        self._run(FindLinks(sections), every, leaving.append)
        moved = _find_moves(sections, leaving)
        self._run(TakeOut(sections, moved), sorted(moved))
        self._run(MakeSpans(sections, moved, self.edges), every)
        self._run(Gather(sections, moved, self.places.encoder, with_ids), every, self.store)

    def _put_sections(self, found: Iterable[Section]) -> Sections:
        """The sections, put where all processes find them."""
        kept = {name: self.places.more_tables(name) for name in ("columns", "links", "away", "spans")}
        count, rows_count = 0, 0

        def put(numbered: tuple[int, Section]) -> None:
            number, section = numbered
            kept["columns"].put(number, section.own, section.opened, silences_of(section.own, self.silences))

        for number, section in with_work_behind(enumerate(found), put):
            count, rows_count = number + 1, rows_count + section.own.num_rows
        memory.give_back_if_much()
        return Sections(self.cuts, count, rows_count, **kept)

    def _run(
        self,
        work: Callable[[int], Result],
        numbers: Iterable[int],
        store: Callable[[Result], None] = lambda _: None,
    ) -> None:
        self.places.engine.run(work, numbers, lambda _, result: store(result), at_once=SECTIONS_AT_ONCE)


def _taken_from(waiting: list[Section]) -> Iterator[Section]:
    """All of a list, which keeps none of them."""
    while waiting:
        yield waiting.pop(0)


def _find_moves(sections: Sections, leaving: Sequence[LinksOut]) -> dict[int, MovedTrees]:
    """The trees of each section that belong to others. Arguments: the links that lead out of each."""
    links = LinksOut(*(np.concatenate([getattr(each, name) for each in leaving]) for name in ("child", "parent")))
    above, of = links.parent.copy(), sections.cuts.section_of(links.parent)
    for number in np.unique(of).tolist():
        mine, own = np.flatnonzero(of == number), sections.own(number)
        root = local_roots(numbers(sections.links.look(number)[0]["parent"]), own)
        above[mine] = root[links.parent[mine] - own.start]
    return owners(links, above, sections.cuts)


def _encode_spans(spans: pa.Table, encoder: RowEncoder, *, with_ids: bool) -> SpansOfPart:
    return SpansOfPart(encoder.encode("spans", spans), coalesce(spans, ["span_id"], NONE) if with_ids else NO_IDS)
