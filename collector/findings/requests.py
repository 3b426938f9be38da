"""Exchanges with what a diagnosis asks of them: whose child each is, how long its server itself took, on which device,
and whether a client waits for it.

A server's own time is from the last byte of the request to the first of the answer, without the time in which it waited
for servers that it asked itself. So a server that waits for a slow one is not taken for slow.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import polars as pl
import pyarrow as pa

from collector.columns import indices, texts
from collector.critical_path import NONE, Longs
from collector.foreground import of_clients
from collector.schema import EXCHANGES
from collector.services import target_words
from collector.spans import LEDGER_COLUMNS, places
from collector.stamps import UNSEEN, stacked
from tracer import _core

EXCHANGE_COLUMNS = [
    *("exchange_id", "connection_id", "client_host", "server_host", "service", "method", "target", "status"),
    *("protocol", "complete", "connect_start_trace_ns", "request_first_sent_trace_ns"),
    *("request_first_received_trace_ns", "request_last_received_trace_ns", "response_first_sent_trace_ns"),
    *("continue_sent_trace_ns", "background"),
    *("response_last_sent_trace_ns", "response_last_received_trace_ns", "given_up_trace_ns"),
]
SPAN_COLUMNS = ["span_id", "trace_id", "parent_span_id", "depth", "critical_ns", *LEDGER_COLUMNS]


def requests_of(exchanges: Iterable[pa.Table], spans: pa.Table) -> pl.DataFrame:
    """Exchanges and their spans as one row each, with short names for the times, `own_ns`, `device`,
    `partition` (a number for it), and `waited`: whether it is a client's or is done for one (`collector.foreground`).

    Arguments: parts of `exchanges` with at least `EXCHANGE_COLUMNS`, of `spans` `SPAN_COLUMNS`. Times are trace times
    in ns; hosts, services, methods and devices are categories. Memory: about 200 bytes a row, and its target.
    Cost: passes over the rows.
    """
    rows = stacked(_parts(exchanges, pl.DataFrame(spans.select(SPAN_COLUMNS))))
    ends = rows.select("client_host", "server_host", "background", "trace_id")
    mine = of_clients(ends.filter(rows["depth"] == 0), ends)["trace_id"]
    own = np.zeros(len(rows) + 1, dtype=np.bool_)  # the last for a trace whose root is not there
    own[places(rows["exchange_id"], mine)] = True
    own[NONE] = False
    took = pl.col("answered") - pl.max_horizontal("arrived", "asked")
    return rows.with_columns(asking_ns=_asking(rows)).with_columns(
        own_ns=(took - pl.col("asking_ns").fill_null(0)).clip(lower_bound=0),
        waited=pl.Series(own[places(rows["exchange_id"], rows["trace_id"])]),
    )


def _parts(exchanges: Iterable[pa.Table], spans: pl.DataFrame) -> Iterator[pl.DataFrame]:
    yield _part(EXCHANGES.empty_table(), spans.clear())
    begin = 0
    for part in exchanges:
        yield _part(part, _of_part(part, spans, begin))
        begin += part.num_rows


def _part(exchanges: pa.Table, spans: pl.DataFrame) -> pl.DataFrame:
    """Exchanges with the spans of the same rows."""
    rows = pl.DataFrame(exchanges.select(EXCHANGE_COLUMNS)).hstack(spans.drop("span_id"))
    device, devices = _named(exchanges, "device")
    partition, partitions = _named(exchanges, "partition")
    return rows.select(
        *("exchange_id", "connection_id", "client_host", "server_host", "service", "method", "status"),
        *("target", "background", "trace_id", "parent_span_id", "depth", "critical_ns"),
        device=_gathered(pl.Series(devices, dtype=pl.Categorical), device),
        partition=_gathered(pl.Series(partitions, dtype=pl.String).hash(), partition),
        network_ns=pl.sum_horizontal("connect_ns", "request_network_ns", "response_network_ns", "stall_ns"),
        readable=pl.col("protocol") != "unknown",
        complete="complete",
        begin=pl.coalesce("connect_start_trace_ns", "request_first_sent_trace_ns", "request_first_received_trace_ns"),
        asked=pl.coalesce("request_first_received_trace_ns", "request_last_received_trace_ns"),
        arrived="request_last_received_trace_ns",
        invited="continue_sent_trace_ns",
        answered="response_first_sent_trace_ns",
        ended=pl.coalesce("response_last_received_trace_ns", "response_last_sent_trace_ns", "given_up_trace_ns"),
        given_up="given_up_trace_ns",
    )


def _of_part(exchanges: pa.Table, spans: pl.DataFrame, begin: int) -> pl.DataFrame:
    """The spans of a part that begins at a row: in a trace's own tables they stand in the same order."""
    ids, here = pl.DataFrame(exchanges.select(["exchange_id"]))["exchange_id"], spans.slice(begin, exchanges.num_rows)
    if ids.equals(here["span_id"]):
        return here
    return pl.DataFrame({"span_id": ids}).join(spans, on="span_id", how="left", maintain_order="left")


def _named(exchanges: pa.Table, part: str) -> tuple[Longs, list[str]]:
    """What each target names as its device, its partition: a place in the list of names; `NONE` for nothing."""
    found, names = np.full(exchanges.num_rows, NONE), list[str]()
    targets = texts(exchanges["target"])
    services, known = indices(exchanges["service"])
    for service, (prefix, place) in target_words(part).items():
        if service in known:
            wanted = services == known.index(service)
            codes, words = _core.target_words(targets | {"wanted": wanted}, prefix, place)
            found = np.where(codes == NONE, found, codes + len(names))
            names += words
    return found, names


def _gathered(names: pl.Series, places: Longs) -> pl.Series:
    return names.gather(pl.select(pl.when(pl.Series(places) != NONE).then(pl.Series(places))).to_series())


def _asking(rows: pl.DataFrame) -> pl.Series:
    """How long each waited for at least one of those that it asked, before it answered; null for none."""
    times = {"began_ns": "begin", "ended_ns": "ended", "answered_ns": "answered"}
    columns = {name: rows[column].fill_null(UNSEEN).to_numpy() for name, column in times.items()}
    heard = rows.select(pl.max_horizontal("arrived", "asked").fill_null(UNSEEN)).to_series().to_numpy()
    parent = places(rows["exchange_id"], rows["parent_span_id"])
    waited = _core.asking_ns(columns | {"parent": parent, "heard_ns": heard})
    return pl.Series(waited).replace(UNSEEN, None)
