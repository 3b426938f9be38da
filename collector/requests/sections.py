"""Links the exchanges of a long trace section by section: nothing needs memory for all of them.

A section is `SECTION_ROWS` exchanges that follow each other in the trace. Parents are near their calls, so with a
section are seen the `AROUND_ROWS` exchanges before and after it, and earlier ones that were open when those began:

      open before │ around │       its own       │ around │
    ──────────────┼────────┼─────────────────────┼────────┼──▶ rows of the trace

1. `links_of_section` finds the parents of a section's own exchanges, among all that are seen with it. So each exchange
   is judged once, by what happened around it.
2. A tree of requests may reach over several sections. It belongs to the section of its root: `owners` follows the
   links that lead from one section to another, of which there are few.
3. `spans_of_section` makes the spans of all trees that belong to a section, with what others hold of them.

Invariants: each exchange has one span, and is in one tree; parents that packets show are those that
`collector.requests.spans.link_all` finds, as far as they are seen with the section.
Limits: what is learned, of calls (`collector.requests.inferred_parents`) and of how long work takes without a queue
(`collector.requests.waits`), is learned of each section by itself. Work that
is deferred for longer than all that is seen with its section has no parent, if that had ended by then. A tree of which
one section after the other holds some is one part: its memory grows with it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from collector import _core
from collector.requests.critical_path import NONE, Int64Array
from collector.requests.linking_columns import OF_LINKS, linking_columns
from collector.requests.spans import LinkedRows, links_of, spans_of
from collector.trace.arrow import coalesce, numbers
from collector.trace.request_times import BEGIN, END, SERVER_END
from collector.trace.schema import ID_STRIDE_BITS
from collector.trace.time_columns import UNSEEN

SECTION_ROWS = 1 << 19
"""Enough to learn links from, and 300 MiB with all that is seen around."""
AROUND_ROWS = 1 << 16
MOST_OPEN = 1 << 16
"""Of earlier exchanges that are open the latest: those that are never answered would become ever more."""
MOST_WHOLE = 2
"""A trace of so many sections is linked whole: that costs less, and no more memory."""
FOREVER = np.iinfo(np.int64).max
ROW = "row"
"""The place of an exchange among all of the trace that are linked."""
OF_LINK = {"by_id": False, "confidence": 0, "alternative_id": NONE, "alternative_confidence": 0}
"""What is known of a link beside its parent, and the value where there is none; names as in `LinkedRows`."""


class Cuts(Struct, frozen=True):
    """Where a trace is cut into sections; `around` is not more than `rows`."""

    rows: int = SECTION_ROWS
    around: int = AROUND_ROWS
    most_whole: int = MOST_WHOLE
    most_open: int = MOST_OPEN

    def section_of(self, row: Int64Array) -> Int64Array:
        """The number of the section that owns each row."""
        return row // self.rows

    def tail(self, own: pa.Table) -> pa.Table:
        """The last rows of a section, which are around the next one."""
        return own.slice(max(0, own.num_rows - self.around))

    def own(self, number: int, rows_count: int) -> range:
        """The rows that a section owns, of so many in all."""
        return range(number * self.rows, min((number + 1) * self.rows, rows_count))


class Section(Struct, frozen=True):
    """What is known of a section before links: `linking_columns` with `ROW`, in its order."""

    own: pa.Table
    opened: pa.Table  # exchanges before all that are around it that were open then


class LinksOut(Struct, frozen=True):
    """Links that lead out of a section, by rows of the trace."""

    child: Int64Array
    parent: Int64Array


class MovedTrees(Struct, frozen=True):
    """The trees of a section whose roots are in other sections."""

    root: Int64Array  # ascending: the uppermost row of each within the section
    owner: Int64Array  # the section of the tree's root


def cut(parts: Iterable[pa.Table], cuts: Cuts) -> Iterator[Section]:
    """The sections of a trace. Arguments: parts of its `linking_columns`, in any sizes.

    Memory: two sections.
    """
    waiting, count, begin = list[pa.Table](), 0, 0
    opened = tail = _of_row(linking_columns([]), 0)
    for part in parts:
        waiting.append(part)
        count += part.num_rows
        while count > cuts.rows:
            every = _together(waiting)
            own = _of_row(every.slice(0, cuts.rows), begin)
            yield Section(own, opened)
            opened, tail = _open_after(_together([opened, tail, own]), cuts), cuts.tail(own)
            waiting, count, begin = [every.slice(cuts.rows)], count - cuts.rows, begin + cuts.rows
    if waiting:
        yield Section(_of_row(_together(waiting), begin), opened)


def _of_row(columns: pa.Table, begin: int) -> pa.Table:
    """The columns with `ROW`, counted from `begin`."""
    return columns.append_column(ROW, pa.array(np.arange(begin, begin + columns.num_rows)))


def _open_after(known: pa.Table, cuts: Cuts) -> pa.Table:
    """Of all that is known up to the end of a section, by row, what was open when its last rows began, those around the
    next one; without these."""
    count = known.num_rows - cuts.around
    begun = BEGIN.times(known.slice(count))
    earlier = known.slice(0, count)
    ends = np.maximum(END.times(earlier), SERVER_END.times(earlier))
    seen = begun[begun != UNSEEN]
    is_open = (ends == UNSEEN) | (ends >= (seen.min() if len(seen) else UNSEEN))
    return earlier.take(pa.array(np.flatnonzero(is_open)[-cuts.most_open :]))


def seen_with(before: Section | None, section: Section, after: Section | None, cuts: Cuts) -> pa.Table:
    """A section with all that is seen with it, by row. Arguments: the sections beside it, None at the ends."""
    tail = [] if before is None else [cuts.tail(before.own)]
    head = [] if after is None else [after.own.slice(0, cuts.around)]
    return _together([section.opened, *tail, section.own, *head])


def _together(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries()


def links_of_section(seen: pa.Table, own: range) -> tuple[pa.Table, LinksOut]:
    """The links of a section's own exchanges, in their order, and those that lead out of it.

    Arguments: from `seen_with`. Returns: `parent` (a row of the trace, NONE for a root), and the other arrays of
    `LinkedRows`.
    """
    rows, found = numbers(seen[ROW]), links_of(seen)
    first, end = np.searchsorted(rows, [own.start, own.stop])
    parent = np.where(found.parent == NONE, NONE, rows[found.parent])[first:end]
    links = {"parent": parent} | {name: getattr(found, name)[first:end] for name in OF_LINK}
    leaves = (parent != NONE) & ((parent < own.start) | (parent >= own.stop))
    child = np.flatnonzero(leaves)
    return pa.table({name: pa.array(values) for name, values in links.items()}), LinksOut(
        child + own.start, parent[child]
    )


def local_roots(parent: Int64Array, own: range) -> Int64Array:
    """For each row of a section the uppermost above it that the section holds. Arguments: `parent`, rows of the
    trace."""
    inside = np.where((parent >= own.start) & (parent < own.stop), parent - own.start, NONE)
    return _core.trace_forest(inside)["root"] + own.start


def owners(leaving: LinksOut, above: Int64Array, cuts: Cuts) -> dict[int, MovedTrees]:
    """For each section its trees that belong to others.

    Arguments: the links that lead out of all sections; for each of their parents its uppermost row, from
    `local_roots`.
    """
    order = np.argsort(leaving.child)
    child, top = leaving.child[order], above[order]
    while len(child):  # a parent begins before its child, so this ends
        place = np.minimum(np.searchsorted(child, top), len(child) - 1)
        goes_on = child[place] == top
        if not goes_on.any():
            break
        top = np.where(goes_on, top[place], top)
    of, owner = cuts.section_of(child), cuts.section_of(top)
    moves = of != owner
    return {
        number: MovedTrees(child[mine], owner[mine])
        for number in np.unique(of[moves]).tolist()
        if len(mine := np.flatnonzero(moves & (of == number)))
    }


def owner_of_rows(parent: Int64Array, own: range, moved: MovedTrees | None, number: int) -> Int64Array:
    """The section to which the tree of each row of a section belongs."""
    owner = np.full(len(parent), number)
    if moved is not None:
        root = local_roots(parent, own)
        place = np.minimum(np.searchsorted(moved.root, root), len(moved.root) - 1)
        owner = np.where(moved.root[place] == root, moved.owner[place], owner)
    return owner


class Trees(Struct, frozen=True):
    """Some exchanges: their columns, with `ROW`, their links, and the silences of their messages."""

    columns: pa.Table
    links: pa.Table
    silences: pa.Table

    def some(self, chosen: Int64Array) -> "Trees":
        """Those of some rows."""
        rows = pa.array(chosen)
        columns = self.columns.take(rows)
        return Trees(columns, self.links.take(rows), silences_of(columns, self.silences))


def silences_of(columns: pa.Table, silences: pa.Table) -> pa.Table:
    """The silences of these exchanges."""
    if not silences.num_rows:
        return silences
    ids = coalesce(columns, ["exchange_id"], NONE)
    (places,) = _core.places(ids, [numbers(silences["exchange_id"])], ID_STRIDE_BITS)
    return silences.filter(pa.array(places != NONE))


def spans_of_section(
    own: Trees, is_owned: NDArray[np.bool_], foreign: Sequence[Trees], before: Sequence[pa.Table]
) -> tuple[pa.Table, pa.Table]:
    """The spans of all trees that belong to a section, and for each row `ROW` and its exchange's hosts.

    Arguments: all that the section holds, and whether its tree belongs to it; what other sections hold of these
    trees; columns of exchanges that are seen before, which show what a client did meanwhile.
    """
    held = [own, *foreign]
    others = [_without(table, [each.columns for each in foreign]) for table in before]
    every = _together([*others, *(each.columns for each in held)])
    skipped = sum(table.num_rows for table in others)
    belongs = np.concatenate([is_owned, *(np.ones(each.columns.num_rows, np.bool_) for each in foreign)])
    links = pa.concat_tables([each.links for each in held])
    placed = _links_at_places(links, numbers(every[ROW])[skipped:], belongs, skipped)
    silences = pa.concat_tables([each.silences for each in held])
    ends = every.select([ROW, "client_host", "server_host"])
    spans = spans_of(every.drop_columns([ROW, *OF_LINKS]), placed, silences)
    if belongs.all():
        return spans.slice(skipped), ends.slice(skipped)
    chosen = pa.array(np.flatnonzero(belongs) + skipped)
    return spans.take(chosen), ends.take(chosen)


def _without(table: pa.Table, others: Sequence[pa.Table]) -> pa.Table:
    """The rows of a table that are in none of the others."""
    rows = np.concatenate([numbers(table[ROW])[:0], *(numbers(each[ROW]) for each in others)])
    is_other = np.isin(numbers(table[ROW]), rows)
    return table.filter(pa.array(~is_other)) if is_other.any() else table


def _links_at_places(links: pa.Table, rows: Int64Array, belongs: NDArray[np.bool_], skipped: int) -> LinkedRows:
    """The links of exchanges that belong to a section, with parents by their places; all others are roots.

    Arguments: the links of all, with parents by `rows`, which are those of the places from `skipped` on.
    """
    parent = np.where(belongs, numbers(links["parent"]), NONE)
    known = np.flatnonzero(parent != NONE)
    order = np.argsort(rows, kind="stable")
    parent[known] = order[np.searchsorted(rows, parent[known], sorter=order)] + skipped

    def behind(values: NDArray[Any], missing: int) -> NDArray[Any]:
        return np.concatenate([np.full(skipped, missing, values.dtype), values])

    return LinkedRows(
        behind(parent, NONE),
        *(behind(numbers(links[name]), missing) for name, missing in OF_LINK.items()),
    )


def rows_between(table: pa.Table, own: range) -> pa.Table:
    """The rows of a table that a section owns."""
    rows = numbers(table[ROW])
    are_mine = (rows >= own.start) & (rows < own.stop)
    return table if are_mine.all() else table.filter(pa.array(are_mine))
