"""Links requests and makes the table `spans`: of a long trace stretch by stretch, wherever the analysis runs.

`collector.requests.stretches` explains stretches. Their tables are kept in files, and each step is work on one stretch:

1. this process cuts the merged exchanges into stretches;
2. `FindLinks`: the parents of a stretch's own exchanges;
3. this process follows the links that lead from one stretch to another;
4. `TakeOut`: what a stretch holds of trees that belong to others;
5. `MakeSpans`: the spans of all trees that belong to a stretch;
6. `Gather`: the spans of a stretch's own exchanges, encoded in the order of the table.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

import numpy as np
import pyarrow as pa
from msgspec import Struct

from collector.analysis.period import PeriodEdges
from collector.analysis.places import Places
from collector.execution import memory
from collector.execution.engine import Tables
from collector.requests.critical_path import NONE
from collector.requests.linking_columns import linking_columns
from collector.requests.spans import link_columns
from collector.requests.stretches import (
    ROW,
    Cuts,
    LinksOut,
    MovedTrees,
    Stretch,
    Trees,
    cut,
    links_of_stretch,
    local_roots,
    owner_of_rows,
    owners,
    rows_between,
    seen_with,
    silences_of,
    spans_of_stretch,
)
from collector.trace.arrow import coalesce, numbers
from collector.trace.table_store import ROW_GROUP_ROWS, EncodedRows
from collector.trace.time_columns import Int64Array
from collector.trace.writing import RowEncoder

OWNER = "owner"
HOSTS = ("client_host", "server_host")
NO_IDS: Int64Array = np.empty(0, np.int64)


class SpansOfPart(Struct, frozen=True):
    """Successive rows of the table `spans`."""

    rows: EncodedRows
    ids: Int64Array  # of a period's trace the exchanges that have these spans; else empty


class Stretches(Struct, frozen=True):
    """The stretches of one trace, and what is kept of each."""

    cuts: Cuts
    count: int
    rows_count: int
    columns: Tables  # its own exchanges, those open before, the silences of its own
    links: Tables
    away: Tables  # of trees that belong to others: exchanges with `OWNER`, links, silences
    spans: Tables  # of the trees that belong to it, with `ROW`

    def own(self, number: int) -> range:
        """The rows that a stretch owns."""
        return self.cuts.own(number, self.rows_count)

    def stretch(self, number: int) -> Stretch | None:
        """A stretch before links; None beyond the ends of the trace."""
        if not 0 <= number < self.count:
            return None
        own, opened, _ = self.columns.look(number)
        return Stretch(own, opened)

    def all_of(self, number: int) -> Trees:
        """All exchanges of a stretch, with their links."""
        own, _, silences = self.columns.look(number)
        return Trees(own, self.links.look(number)[0], silences)

    def owner(self, number: int, moved: Mapping[int, MovedTrees]) -> Int64Array:
        """The stretch to which the tree of each row of a stretch belongs."""
        parent = numbers(self.links.look(number)[0]["parent"])
        return owner_of_rows(parent, self.own(number), moved.get(number), number)


class FindLinks(Struct, frozen=True):
    """Finds the parents of a stretch's exchanges; returns the links that lead out of it."""

    stretches: Stretches

    def __call__(self, number: int) -> LinksOut:
        """The work on one stretch."""
        of = self.stretches
        before, stretch, after = (of.stretch(each) for each in (number - 1, number, number + 1))
        assert stretch is not None
        links, leaving = links_of_stretch(seen_with(before, stretch, after, of.cuts), of.own(number))
        of.links.put(number, links)
        memory.give_back()
        return leaving


class TakeOut(Struct, frozen=True):
    """Takes out what a stretch holds of trees that belong to others."""

    stretches: Stretches
    moved: Mapping[int, MovedTrees]

    def __call__(self, number: int) -> None:
        """The work on one stretch."""
        of = self.stretches
        owner = of.owner(number, self.moved)
        rows = np.flatnonzero(owner != number)
        trees = of.all_of(number).some(rows)
        of.away.put(number, trees.columns.append_column(OWNER, pa.array(owner[rows])), trees.links, trees.silences)


class MakeSpans(Struct, frozen=True):
    """Makes the spans of all trees that belong to a stretch; of a period's trace, those that began in the period."""

    stretches: Stretches
    moved: Mapping[int, MovedTrees]
    edges: PeriodEdges | None

    def __call__(self, number: int) -> None:
        """The work on one stretch."""
        of, stretch = self.stretches, self.stretches.stretch(number)
        assert stretch is not None
        before = of.stretch(number - 1)
        tail = [] if before is None else [of.cuts.tail(before.own)]
        is_owned = of.owner(number, self.moved) == number
        foreign = [self._foreign(number, other) for other, each in self.moved.items() if (each.owner == number).any()]
        spans, ends = spans_of_stretch(of.all_of(number), is_owned, foreign, [stretch.opened, *tail])
        spans = spans.append_column(ROW, ends[ROW])
        of.spans.put(number, spans if self.edges is None else spans.filter(self.edges.hold_trees(spans, ends)))
        memory.give_back()

    def _foreign(self, number: int, other: int) -> Trees:
        """What another stretch holds of this one's trees."""
        columns, links, silences = self.stretches.away.look(other)
        trees = Trees(columns, links, silences).some(np.flatnonzero(numbers(columns[OWNER]) == number))
        return Trees(trees.columns.drop_columns([OWNER]), trees.links, trees.silences)


class Gather(Struct, frozen=True):
    """Encodes the spans of a stretch's own exchanges."""

    stretches: Stretches
    moved: Mapping[int, MovedTrees]
    encoder: RowEncoder
    with_ids: bool

    def __call__(self, number: int) -> SpansOfPart:
        """The work on one stretch."""
        of, moved = self.stretches, self.moved.get(number)
        places = [number, *([] if moved is None else np.unique(moved.owner).tolist())]
        mine = pa.concat_tables([rows_between(of.spans.look(place)[0], of.own(number)) for place in places])
        rows = numbers(mine[ROW])
        if (rows[1:] < rows[:-1]).any():
            mine = mine.take(pa.array(np.argsort(rows)))
        return _encode_spans(mine.drop_columns([ROW]), self.encoder, with_ids=self.with_ids)


def link_requests(
    requests: Iterable[pa.Table],
    silences: pa.Table,
    places: Places,
    cuts: Cuts,
    edges: PeriodEdges | None,
    store: Callable[[SpansOfPart], None],
) -> None:
    """The spans of all requests of a trace, in their order; `store` is called with each part.

    Arguments: parts of the table `exchanges` without streams; all silences; `edges` of a period, whose requests alone
    get spans.
    Raises: as `Engine.run`.
    """
    stretches = cut(chain([linking_columns([])], (linking_columns([part]) for part in requests)), cuts)
    begun = [*islice(stretches, cuts.most_whole + 1)]
    if len(begun) > cuts.most_whole:
        _by_stretch(chain(_taken_from(begun), stretches), silences, places, cuts, edges, store)
        return
    columns = [pa.concat_tables([stretch.own for stretch in begun]).unify_dictionaries().drop_columns([ROW])]
    begun.clear()
    for part in _of_whole(columns, silences, places, edges):
        store(part)


def _taken_from(waiting: list[Stretch]) -> Iterator[Stretch]:
    """All of a list, which keeps none of them."""
    while waiting:
        yield waiting.pop(0)


def _of_whole(
    columns: list[pa.Table], silences: pa.Table, places: Places, edges: PeriodEdges | None
) -> Iterator[SpansOfPart]:
    """The spans of a trace that is linked whole, whose columns are taken from the list."""
    ends = None if edges is None else columns[0].select(HOSTS)
    spans = link_columns(columns, silences)
    if edges is not None and ends is not None:
        spans = spans.filter(edges.hold_trees(spans, ends))
    for begin in range(0, max(1, spans.num_rows), ROW_GROUP_ROWS):
        yield _encode_spans(spans.slice(begin, ROW_GROUP_ROWS), places.encoder, with_ids=edges is not None)


def _by_stretch(
    found: Iterable[Stretch],
    silences: pa.Table,
    places: Places,
    cuts: Cuts,
    edges: PeriodEdges | None,
    store: Callable[[SpansOfPart], None],
) -> None:
    """As `link_requests`, of several stretches."""
    kept = {name: places.more_tables(name) for name in ("columns", "links", "away", "spans")}
    count, rows_count = 0, 0
    for stretch in found:
        kept["columns"].put(count, stretch.own, stretch.opened, silences_of(stretch.own, silences))
        count, rows_count = count + 1, rows_count + stretch.own.num_rows
    del stretch
    memory.give_back()
    stretches, leaving = Stretches(cuts, count, rows_count, **kept), list[LinksOut]()

    def run(work: Callable[[int], object], numbers: Iterable[int]) -> None:
        places.engine.run(work, numbers, lambda _number, _result: None, one_at_a_time=True)

    every = range(count)
    places.engine.run(FindLinks(stretches), every, lambda _, found: leaving.append(found), one_at_a_time=True)
    moved = _find_moves(stretches, leaving)
    run(TakeOut(stretches, moved), sorted(moved))
    run(MakeSpans(stretches, moved, edges), every)
    gather = Gather(stretches, moved, places.encoder, edges is not None)
    places.engine.run(gather, every, lambda _, part: store(part), one_at_a_time=True)


def _find_moves(stretches: Stretches, leaving: Sequence[LinksOut]) -> dict[int, MovedTrees]:
    """The trees of each stretch that belong to others. Arguments: the links that lead out of each."""
    links = LinksOut(*(np.concatenate([getattr(each, name) for each in leaving]) for name in ("child", "parent")))
    above, of = links.parent.copy(), stretches.cuts.stretch_of(links.parent)
    for number in np.unique(of).tolist():
        mine, own = np.flatnonzero(of == number), stretches.own(number)
        root = local_roots(numbers(stretches.links.look(number)[0]["parent"]), own)
        above[mine] = root[links.parent[mine] - own.start]
    return owners(links, above, stretches.cuts)


def _encode_spans(spans: pa.Table, encoder: RowEncoder, *, with_ids: bool) -> SpansOfPart:
    return SpansOfPart(encoder.encode("spans", spans), coalesce(spans, ["span_id"], NONE) if with_ids else NO_IDS)
