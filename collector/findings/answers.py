"""Requests that got no answer, a broken one, or one that says that something failed.

A server is silent if it sent no answer at all for a while although several requests waited for one: a dead process
behind a living kernel, which goes on accepting and acknowledging. Where it answered others meanwhile, the request is
merely unanswered; where it waited itself, for a server that it had asked or for the body, it is not silent either.
Where messages cannot be read, a turn of a connection stands for a request: it is owed an answer where nearly all other
turns got theirs in much less time, and those that waited got theirs together. How long is unusual is told by the other
hosts of the same service, and by its own other answers.
"""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from collector.critical_path import NONE
from collector.durations import in_words
from collector.ends import end_name, service_at
from collector.findings.finding import Finding, evidence, times
from collector.findings.requests import Requests
from collector.findings.timeouts import fingerprint
from collector.stamps import UNSEEN, Longs, text_codes
from collector.troubles import Troubles
from tracer import _core

SILENT_NS, SILENT_RATIO = 1_000_000_000, 4
"""A server is silent if it answers nothing for so long, and for so many times as long as its peers at their worst."""
STALL_NS = SILENT_NS // SILENT_RATIO
"""A time without an answer that may be a peer's worst."""
WAITING = 2
"""How many requests must wait in the middle of that time: one may be slow by itself."""
SLOW_LEAST = 3
"""So many requests at other times tell a slow server from one that is silent for once."""
INSUFFICIENT_STORAGE = 507
"""RFC 4918 §11.5; Swift's servers say it of a full or unmounted device."""
NOT_FOUND = 404
READS = ["GET", "HEAD"]

WAITS = [
    *("server_host", "service", "exchange_id", "connection_id", "asked", "arrived", "invited", "answered", "given_up"),
    *("asking_ns", "own_ns"),
]
USUAL_LEAST, USUAL_SHARE = 20, 0.99
"""Turns of a protocol that cannot be read tell of a silence where so many others were answered, nearly all of them
(this share) in much less time: else a client may have said something that wants no answer, as a subscriber does."""
TOGETHER_SHARE = 0.2
"""What a stopped process owes, it answers at once when it goes on: most of it within this share of the silence."""
"""What is asked of requests that waited."""
_FATES = {
    "reset": (
        "warning",
        "connection_reset",
        "broken off by a reset before the answer was whole",
        "read the log of the side that sent the RST at that time",
    ),
    "unanswered": (
        "warning",
        "unanswered_request",
        "never answered",
        "read the server's log at that time; see that the process still runs (a kernel accepts for a dead one)",
    ),
    "cut": (
        "info",
        "incomplete_exchange",
        "cut off by the capture's beginning or end, or not wholly seen",
        "start the capture earlier, or end it later",
    ),
}
"""What became of an exchange: severity, kind, text, remedy."""


def answer_findings(troubles: Troubles, requests: Requests, end_trace_ns: int) -> list[Finding]:
    """All that is wrong with answers."""
    return [
        *_silent(requests, troubles, end_trace_ns),
        *_cut_exchanges(troubles),
        *_server_errors(troubles, requests),
        *_missing(requests),
    ]


def _stalled(requests: Requests) -> NDArray[np.bool_]:
    """Requests that arrived at servers that let one of them wait for as long as a stall is."""
    known = (requests.asked != UNSEEN) & requests.where(pl.col("server_host").is_not_null())
    arrived = np.where(requests.arrived == UNSEEN, requests.asked, requests.arrived)
    waited = known & ((requests.answered == UNSEEN) | (requests.answered - arrived >= STALL_NS))
    some = np.bincount(requests.group[waited], minlength=len(requests.groups)) > 0
    server, servers = _core.row_groups([requests.codes[name] for name in ("server_host", "service")])
    at_server = np.zeros(len(servers), dtype=np.bool_)
    at_server[server[some]] = True
    return known & at_server[server][requests.group]


def _until(rows: pl.DataFrame, troubles: Troubles, end_trace_ns: int) -> pl.DataFrame:
    """Requests with `until` when each waited: the answer, the end of the connection, or of the trace."""
    broken = troubles.broken.unique("connection_id")
    until = pl.min_horizontal("given_up", "broken_ns")
    return rows.join(broken, on="connection_id", how="left", maintain_order="left").with_columns(
        until=pl.coalesce("answered", until, pl.lit(end_trace_ns, pl.Int64))
    )


def _silent(all_requests: Requests, troubles: Troubles, end_trace_ns: int) -> Iterable[Finding]:
    """Servers that answered nothing for a while."""
    stalled = _stalled(all_requests)
    if not stalled.any():
        return
    shown = pl.Series("readable", all_requests.readable[stalled])
    requests = _until(all_requests.frame(stalled).select(WAITS).with_columns(shown), troubles, end_trace_ns)
    # The last that is said in an unknown protocol may want no answer.
    requests = requests.filter(pl.col("readable") | pl.col("answered").is_not_null())
    stalls = _stalls(requests)
    meant = stalls.filter(pl.col("waiting") >= WAITING).sort("stall", "exchange_id", descending=[True, False])
    worst = meant.unique(["server_host", "service"], keep="first", maintain_order=True)
    peers = pl.col("stall").sort(descending=True).over("service")
    first, second = peers.first().over("service"), pl.col("stall").top_k(2).min().over("service")
    has_peers = pl.len().over("service") > 1
    others = pl.when(pl.col("stall") == first).then(pl.when(has_peers).then(second)).otherwise(first)
    worst = worst.with_columns(others=others.fill_null(0))
    for row in worst.filter(
        (pl.col("stall") >= SILENT_NS) & (pl.col("stall") >= SILENT_RATIO * pl.col("others"))
    ).iter_rows(named=True):
        if _slow_at_other_times(requests, row):
            continue  # no silence, but slowness
        if not row["readable"] and not _owes_answers(requests, row):
            continue
        waits = _waits_within(requests, row)
        yield Finding(
            severity="warning",
            kind="server_silent",
            host=row["server_host"],
            service=row["service"],
            connection_id=row["connection_id"],
            span_id=row["exchange_id"],
            from_trace_ns=row["since"],
            to_trace_ns=row["until"],
            count=row["waiting"],
            cost_ns=sum(waits),
            text=f"{service_at(row['service'], row['server_host'])} answered nothing for {in_words(row['stall'])}, "
            f"while its kernel went on accepting: {times(row['waiting'], 'request')} waited, the longest "
            f"{in_words(max(waits, default=row['stall']))}" + fingerprint("answer", waits),
            remedy="see whether that process is stopped, hangs or swaps (ps -o stat,wchan; py-spy dump, gdb)",
        )


def _slow_at_other_times(requests: pl.DataFrame, row: dict[str, int]) -> bool:
    """Whether that host also took nearly so long for requests that it had before the silence, or after."""
    apart = (pl.col("until") <= row["since"]) | (pl.col("asked") >= row["until"])
    long = pl.col("own_ns") * SILENT_RATIO >= row["stall"]
    return requests.filter((pl.col("server_host") == row["server_host"]) & apart & long).height >= SLOW_LEAST


def _owes_answers(requests: pl.DataFrame, row: dict[str, int]) -> bool:
    """Whether a server whose protocol cannot be read used to answer soon, and answered all that waited together."""
    mine = requests.filter(
        (pl.col("server_host") == row["server_host"]) & (pl.col("service") == row["service"])
    ).with_columns(took=pl.col("answered") - pl.coalesce("arrived", "asked"))
    waiting = (
        (pl.col("asked") < row["until"]) & (pl.col("answered") >= row["until"]) & (2 * pl.col("took") >= row["stall"])
    )
    usual, late = mine.filter(~waiting), mine.filter(waiting)
    if len(usual) < USUAL_LEAST or late["connection_id"].n_unique() < WAITING:
        return False
    most = usual["took"].quantile(USUAL_SHARE)
    at_once = (late["answered"] - row["until"] <= TOGETHER_SHARE * row["stall"]).sum()
    return most is not None and most * SILENT_RATIO <= row["stall"] and 2 * at_once >= len(late)


def _waits_within(requests: pl.DataFrame, row: dict[str, int]) -> list[int]:
    """How long requests to a silent server waited that were there in its silence."""
    until = pl.col("until")
    there = requests.filter(
        (pl.col("server_host") == row["server_host"])
        & (pl.col("service") == row["service"])
        & (pl.col("asked") < row["until"])
        & (until > row["since"])
    )
    waits = there.select(until - pl.col("asked")).to_series()
    return [wait for wait in waits.to_list() if wait >= SILENT_NS // 2]


def _stalls(requests: pl.DataFrame) -> pl.DataFrame:
    """Times between a server's answers in which somebody waited: `since`, `until`, `stall` (ns), `waiting` (how many).

    Answers in order of time; a stall begins with the answer before, or with the first arrival of those still waiting.
    """
    for_body = pl.col("invited").is_not_null() & pl.col("answered").is_null()
    short = pl.col("answered").is_null() & (pl.col("until") - pl.col("asked") < SILENT_NS)
    rows = requests.filter(~for_body & (pl.col("asking_ns").fill_null(0) == 0) & ~short).select(
        *("server_host", "service", "exchange_id", "connection_id", "until", "readable"),
        arrived=pl.coalesce("arrived", "asked"),
        silent=pl.col("answered").is_null(),
    )
    order, first = _by_server(rows)
    until, arrived = (rows[name].to_numpy()[order] for name in ("until", "arrived"))
    spoken = np.flatnonzero(~rows["silent"].to_numpy()[order])
    since = np.empty_like(until)
    for start, end in pairwise([*first.tolist(), len(order)]):
        since[start:end] = np.minimum.accumulate(arrived[start:end][::-1])[::-1]
    goes_on = spoken[~np.isin(spoken + 1, [*first, len(order)])]
    since[goes_on + 1] = np.maximum(since[goes_on + 1], until[goes_on])
    long = np.flatnonzero(until - since >= STALL_NS)
    middle = since[long] + (until - since)[long] // 2
    waiting = np.empty(len(long), dtype=np.int64)
    for start, end in pairwise([*first.tolist(), len(order)]):
        here = (long >= start) & (long < end)
        if here.any():
            come = np.searchsorted(np.sort(arrived[start:end]), middle[here], side="right")
            waiting[here] = come - np.searchsorted(until[start:end], middle[here], side="right")
    found = rows[order[long]].with_columns(
        since=pl.Series(since[long]), stall=pl.Series((until - since)[long]), waiting=pl.Series(waiting)
    )
    return found[np.argsort(middle, kind="stable")]


def _by_server(rows: pl.DataFrame) -> tuple[Longs, Longs]:
    """The rows by server, and of each in order of `until`; and where each server's begin."""
    number, _ = _core.row_groups([text_codes(rows[name]) for name in ("server_host", "service")])
    order = np.argsort(rows["until"].to_numpy(), kind="stable")
    few = number.max(initial=0) < 1 << 15  # then it is sorted by its digits
    order = order[np.argsort(number[order].astype(np.int16 if few else np.int32), kind="stable")]
    return order, np.flatnonzero(np.diff(number[order], prepend=-1))


def _cut_exchanges(troubles: Troubles) -> Iterable[Finding]:
    """Requests without a whole answer."""
    for row in troubles.cut.iter_rows(named=True):
        severity, kind, text, remedy = _FATES[row["fate"]]
        wait = f", the longest wait {in_words(row['worst_ns'])}" if row["worst_ns"] else ""
        until = row["to_trace_ns"] if severity == "warning" else row["from_trace_ns"]
        waited = [row["worst_ns"]] if row["fate"] == "unanswered" else []
        yield Finding(
            severity=severity,
            kind=kind,
            host=row["server_host"],
            service=row["service"],
            count=row["count"],
            text=f"{times(row['count'], 'request')} from {end_name(row['client_host'])} to "
            f"{service_at(row['service'], row['server_host'])} {text}{wait}" + fingerprint("answer", waited),
            remedy=remedy,
            **evidence(row | {"to_trace_ns": until}),
        )


def _server_errors(troubles: Troubles, requests: Requests) -> Iterable[Finding]:
    """Answers of 500 and above."""
    if troubles.failed.is_empty():
        return
    failed = requests.frame(requests.statuses() >= 500)
    devices = failed.group_by("server_host", "service", "status").agg(
        pl.col("device").drop_nulls().unique().sort(), cost=pl.col("critical_ns").sum(), begin=pl.col("begin").min(),
        end=pl.col("ended").max(),
    ).with_columns(pl.col("server_host", "service").cast(pl.String))  # fmt: skip
    reasons = _reasons(requests, failed)
    rows = troubles.failed.join(devices, on=["server_host", "service", "status"], how="left", nulls_equal=True)
    for row in rows.iter_rows(named=True):
        full = row["status"] == INSUFFICIENT_STORAGE
        of = f" (device {', '.join(row['device'])})" if row["device"] and len(row["device"]) <= 2 else ""
        yield Finding(
            severity="warning",
            kind="disk_full" if full else "server_error",
            host=row["server_host"],
            service=row["service"],
            count=row["count"],
            text=f"{service_at(row['service'], row['server_host'])}{of} answered {row['status']} to "
            f"{times(row['count'], 'request')}"
            + (": it has no room, or no disk there" if full else reasons.get((row["server_host"], row["service"]), "")),
            remedy="make room, or mount the disk (df, dmesg)"
            if full
            else "read that server's log for the transaction id of the span, and dmesg of that host",
            **{**evidence(row), "cost_ns": row["cost"] or 0, "from_trace_ns": row["begin"] or row["from_trace_ns"],
               "to_trace_ns": row["end"] or row["to_trace_ns"]},
        )  # fmt: skip


def _reasons(requests: Requests, failed: pl.DataFrame) -> dict[tuple[str, str], str]:
    """Of servers that `failed` requests, what most of these had asked in vain before, in words."""
    given_up, _ = requests.given_up()
    vain = pl.concat([requests.frame(given_up), failed]).unique("exchange_id", maintain_order=True)
    failed = failed.select("exchange_id", of="server_host", by="service")
    unanswered = pl.when(pl.col("status").is_null()).then(pl.lit("had left it unanswered"))
    fate = unanswered.otherwise(pl.format("answered {}", "status"))
    groups = (
        vain.join(failed, left_on="parent_span_id", right_on="exchange_id")
        .with_columns(fate=fate, waited=pl.col("given_up") - pl.col("begin") - pl.col("pause_ns"))
        .group_by("of", "by", "service", "server_host", "fate")
        .agg(count=pl.col("parent_span_id").n_unique(), waited=pl.col("waited").max())
        .sort("count", "service", "server_host", "fate")
    )
    return {
        (
            row["of"],
            row["by"],
        ): f"; {row['count']:,} of them after {service_at(row['service'], row['server_host'])} {row['fate']}"
        + (f" for up to {in_words(row['waited'])}" if row["waited"] else "")
        for row in groups.iter_rows(named=True)
    }


def _missing(requests: Requests) -> Iterable[Finding]:
    """Replicas that did not have what another, asked by the same request, had; not while they were writing it."""
    status = requests.statuses()
    asked = (requests.parent != NONE) & requests.where(pl.col("method").is_in(READS))
    not_there = (status == NOT_FOUND) & asked
    if not not_there.any():
        return
    is_there = (status >= 200) & (status <= 299) & asked
    kind, kinds = _core.row_groups([requests.codes[name] for name in ("service", "method")])
    question = requests.parent * len(kinds) + kind[requests.group]  # the same for all that one request asked the same
    asks_in_vain = np.zeros(len(status) + 1, dtype=np.bool_)
    asks_in_vain[requests.parent[not_there]] = True
    in_vain = np.flatnonzero(not_there)
    in_vain = in_vain[np.isin(question[in_vain], question[is_there & asks_in_vain[requests.parent]])]
    if not len(in_vain):
        return
    missing = requests.frame(in_vain)
    missing = missing.join(_being_written(requests, missing), on="exchange_id", how="anti")
    for (host, service), rows in missing.sort("begin", "exchange_id").group_by(
        "server_host", "service", maintain_order=True
    ):
        first = rows.row(0, named=True)
        yield Finding(
            severity="warning",
            kind="missing_replica",
            host=_texts(host)[0],
            service=_texts(service)[0],
            connection_id=first["connection_id"],
            span_id=first["exchange_id"],
            from_trace_ns=first["begin"],
            to_trace_ns=rows["ended"].max(),  # type: ignore[arg-type]
            count=len(rows),
            cost_ns=int(rows["critical_ns"].sum() or 0),
            text=f"{service_at(*_texts(service, host))} does not have what another replica has: it answered 404 to "
            f"{times(len(rows), 'request')} that another answered",
            remedy="see its log for a quarantined or deleted file (a damaged replica is put aside), and whether the "
            "replicators bring it back",
        )


def _texts(*categories: object) -> list[str | None]:
    return [None if each is None else str(each) for each in categories]


def _being_written(requests: Requests, reads: pl.DataFrame) -> pl.DataFrame:
    """Those `reads` during which the same server was asked to change the same thing."""
    key = ["server_host", "service", "target"]
    here = pl.col("server_host").is_in(reads["server_host"].unique().implode())
    changes = requests.frame(requests.where(~pl.col("method").is_in(READS) & here))
    changes = changes.select(*key, changed="begin", settled="ended")
    both = reads.select(*key, "exchange_id", "begin", "ended").join(changes, on=key)
    meets = (pl.col("changed") <= pl.col("ended")) & (pl.col("settled").fill_null(pl.col("ended")) >= pl.col("begin"))
    return both.filter(meets).select("exchange_id")
