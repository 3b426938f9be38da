"""Summarises how much of a report depends on inferred links, and how many of these are uncertain.

A link by transaction id is read from packets. Every other link is inferred from names, order and time; its confidence
is the share of such links that are right (docs/linking-accuracy.md).
"""

import polars as pl
from msgspec import Struct

from collector.requests.critical_path import NONE
from collector.requests.spans import LEDGER_COLUMNS, places
from collector.trace.schema import LinkReason

LOW_CONFIDENCE = 0.8
"""Links with a lower confidence are shown as uncertain: of those drawn as certain, at most one in five may be wrong."""
INFERRED = (pl.col("link_reason") != str(LinkReason.TRANSACTION_ID)).fill_null(value=False)
UNCERTAIN = INFERRED & (pl.col("confidence") < LOW_CONFIDENCE).fill_null(value=False)


class LinkSummary(Struct, frozen=True):
    """The links of a trace: how many there are, and how many of them were inferred."""

    count: int
    inferred_count: int
    uncertain_count: int  # with a confidence below `LOW_CONFIDENCE`
    mean_confidence: float | None  # of the inferred links; null if there is none
    headline_inferred_ns: int  # the part of the headline's time on spans below an inferred link
    headline_ns: int


def inferred_ns(rows: pl.DataFrame) -> int:
    """The part of these spans' ledgers on spans that have an inferred link, themselves or through a parent.

    Arguments: `exchange_id, parent_span_id, link_reason, depth` and the ledger's columns.
    """
    if not len(rows):
        return 0
    parent = places(rows["exchange_id"], rows["parent_span_id"])
    is_on_inferred = rows.select(INFERRED).to_series().to_numpy().copy()
    for _ in range(int(rows["depth"].max() or 0)):  # type: ignore[arg-type]
        is_on_inferred |= (parent != NONE) & is_on_inferred[parent]
    spent = rows.select(pl.sum_horizontal(pl.col(LEDGER_COLUMNS).fill_null(0))).to_series().to_numpy()
    return int(spent[is_on_inferred].sum())


def link_summary(spans: pl.DataFrame, headline_inferred_ns: int, headline_ns: int) -> LinkSummary:
    """The summary. Arguments: `spans` with `link_reason, confidence`; the headline's time, and its inferred part."""
    linked = spans.filter(pl.col("link_reason").is_not_null())
    mean_confidence = linked.filter(INFERRED)["confidence"].mean()
    return LinkSummary(
        count=len(linked),
        inferred_count=linked.select(INFERRED.sum()).item() if len(linked) else 0,
        uncertain_count=linked.select(UNCERTAIN.sum()).item() if len(linked) else 0,
        mean_confidence=None if mean_confidence is None else float(mean_confidence),  # type: ignore[arg-type]
        headline_inferred_ns=headline_inferred_ns,
        headline_ns=headline_ns,
    )


def describe_links(links: LinkSummary) -> str:
    """`376 of 376 calls are linked by inference, … (mean confidence 73 %, 198 below 80 %); 12 % of the time above …`.

    "" if every link was read.
    """
    if not links.inferred_count or links.mean_confidence is None:
        return ""
    low = f", {links.uncertain_count:,} below {LOW_CONFIDENCE:.0%}" if links.uncertain_count else ""
    of = links.headline_inferred_ns / max(1, links.headline_ns)
    part = f"{of:.0%}" if of >= 0.01 else "less than 1%" if of else "none"
    return (
        f"{links.inferred_count:,} of {links.count:,} calls are linked by inference, not by an id "
        f"(mean confidence {links.mean_confidence:.0%}{low}); {part} of the time above is on them"
    ).replace("%", " %")


def describe_doubt(
    parent: str, confidence: float, alternative: str | None, alternative_confidence: float | None
) -> str:
    """`parent uncertain: 62 % PUT /a; next candidate GET /b 21 %`."""
    words = f"parent uncertain: {100 * confidence:.0f} % {parent}"
    if alternative is None or alternative_confidence is None:
        return words
    return f"{words}; next candidate {alternative} {100 * alternative_confidence:.0f} %"
