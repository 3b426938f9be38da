"""The type `Finding`, how severe a finding is, and the table of findings."""

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
from msgspec import Struct, to_builtins

from collector.trace.durations import in_words
from collector.trace.peer_names import PeerNames
from collector.trace.schema import FINDINGS, conform
from collector.trace.threshold import threshold

SEVERITIES = ("error", "warning", "notice", "info")
"""Most urgent first. From `warning` on somebody should act; a `notice` is worth knowing, or follows from another."""
DOUBTS = "capture_drop"
"""The kind that reports how much a capture missed (`collector.findings.captures`)."""

LONGEST_NS = (1 << 63) - 1
"""The largest value of a time column; with clocks decades apart, the cost of many requests may exceed it."""

MOST_LISTED = 5
"""At most so many names are listed in a text."""
MOST_LINES, LINE_CELLS = 3, 190
"""Most lines of a finding, with its remedy, on a terminal of 200 columns, so that several can be read at a glance; and
the cells of a line without indentation."""


@dataclass(frozen=True, slots=True)
class SeverityThresholds:
    """From which cost or count on a finding is a warning, and how findings are ordered."""

    worth_acting_share: float = threshold(
        0.01, "chosen: a slowness that costs a smaller share of all request time is a notice"
    )
    failure_weight_ns: int = threshold(
        1_000_000_000,
        "in the order of findings, a client's failed attempt weighs as much as so long a wait: about as long as a "
        "person waits before thoughts wander (Nielsen, Usability Engineering, 1993, 5.5), and as TCP waits to try "
        "again (RFC 6298 §2)",
    )
    lost_least_share: float = threshold(
        0.002,
        "a larger loss is more than a full queue's occasional drops: at this share TCP over 10 ms is limited to about "
        "30 Mbit/s (Mathis et al. 1997)",
    )
    lost_least_count: int = threshold(
        10, "chosen: fewer lost packets or handshakes show no rate, so they are judged by the time they cost"
    )

    def by_cost(self, cost_ns: int, total_ns: int) -> str:
        """The severity of a slowness. Arguments: what it cost, and all request time of the trace."""
        return "warning" if cost_ns >= self.worth_acting_share * total_ns else "notice"

    def is_much_lost(self, lost: int, sent: int) -> bool:
        """Whether so many lost packets of `sent` are more than the occasional drops of a full queue."""
        return lost >= self.lost_least_count and lost >= self.lost_least_share * sent


class Finding(Struct, frozen=True):
    """A row of the table `findings`."""

    severity: str
    kind: str
    text: str
    remedy: str
    host: str | None = None
    peer_host: str | None = None  # the other end, if the finding is about the path between two hosts
    service: str | None = None
    connection_id: int | None = None
    span_id: int | None = None
    from_trace_ns: int | None = None
    to_trace_ns: int | None = None
    count: int = 0
    cost_ns: int = 0
    failed_count: int = 0  # clients' own attempts that failed or were given up
    cause: str | None = None  # "KIND on HOST" of the finding that this one follows from
    touches: frozenset[str] = frozenset()  # other hosts concerned; not in the table
    services: frozenset[str] = frozenset()  # the services of the host concerned, if several; not in the table
    unanswered: bool = False  # at least half of its cases were never answered; not in the table
    devices: frozenset[str] = frozenset()  # devices of the host concerned; not in the table
    quick: bool = False  # the failures took no longer than successes; not in the table

    @property
    def urgent(self) -> bool:
        """Whether somebody should act."""
        return self.severity in SEVERITIES[:2]

    @property
    def name(self) -> str:
        """The text by which other findings name it as their cause."""
        return f"{self.kind} on {self.host}"

    @property
    def lines_count(self) -> int:
        """How many lines it takes on a terminal of 200 columns, where its text begins with severity and cost."""
        head = f"{self.severity}, {in_words(self.cost_ns)}: "
        return sum(len(textwrap.wrap(words, LINE_CELLS)) for words in (head + self.text, self.remedy))

    @property
    def hosts(self) -> frozenset[str]:
        """All hosts concerned."""
        return self.touches | {host for host in (self.host, self.peer_host) if host is not None}


def as_table(found: Iterable[Finding], severity: SeverityThresholds) -> pa.Table:
    """The table `findings`: most severe first, then those without a cause, then by weight.

    The weight of a finding is its cost, plus `failure_weight_ns` for each failed attempt, plus the weight of its
    consequences. Within one severity, the findings that put others in doubt come first.
    """
    every = list(found)

    def weight_ns(finding: Finding) -> int:
        return finding.cost_ns + severity.failure_weight_ns * finding.failed_count

    brought: dict[str, int] = {}
    for finding in every:
        if finding.cause is not None:
            brought[finding.cause] = brought.get(finding.cause, 0) + weight_ns(finding)

    def order(finding: Finding) -> tuple[int, bool, bool, int]:
        basis = finding.urgent and finding.kind == DOUBTS
        whole = weight_ns(finding) + (brought.get(finding.name, 0) if finding.cause is None else 0)
        return SEVERITIES.index(finding.severity), not basis, finding.cause is not None, -whole

    ordered = sorted(every, key=order)
    columns = {field.name: _plain(field.type) for field in FINDINGS}
    rows = [to_builtins(finding) for finding in ordered]
    for row in rows:
        row["cost_ns"] = min(row["cost_ns"], LONGEST_NS)
    table = pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in columns.items()})
    return conform("findings", table)


def with_names_of_peers(found: pa.Table, peers: PeerNames) -> pa.Table:
    """Findings whose texts name addresses of hosts that were not captured; remedies keep addresses, for commands."""
    if not peers:
        return found
    texts = pa.array([text and peers.in_text(text) for text in found["text"].to_pylist()], pa.string())
    place = found.schema.get_field_index("text")
    return found.set_column(place, found.schema.field(place), texts.cast(found.schema.field(place).type))


def evidence(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a finding that describe a group of cases: the worst one, and the cost of all."""
    return {name: row[name] for name in ("connection_id", "span_id", "from_trace_ns", "to_trace_ns", "cost_ns")}


def times(count: int, what: str) -> str:
    """`1 packet`, `2 packets`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def was_or_were(count: int) -> str:
    """The verb after `times(count, …)`."""
    return "was" if count == 1 else "were"


def listing(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`; of many only the first: `a, b, c and 5 more`."""
    each = list(words)
    if len(each) > MOST_LISTED:
        each = [*each[: MOST_LISTED - 1], f"{len(each) - MOST_LISTED + 1:,} more"]
    return " and ".join([", ".join(each[:-1]), each[-1]]) if len(each) > 1 else "".join(each)


def frame(table: pa.Table) -> pl.DataFrame:
    """A table as a frame, with its dictionary columns as strings."""
    made = pl.from_arrow(table)
    assert isinstance(made, pl.DataFrame)
    return made.with_columns(pl.col(pl.Categorical).cast(pl.String))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
