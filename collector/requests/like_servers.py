"""Groups servers that do the same work although no content shows it; only for links, which are learned from many calls.

Replicas form one service if their requests show it (`collector.services.service_names`). Otherwise (TLS, captures
without payload, few requests) each server is a service `HOST:PORT` of its own, also in reports and views. Links are
learned for calls of one kind. If calls go to one of three replicas at random, each replica gets a third of a kind, and
no request makes a whole number of them. So for links, servers that look alike from outside are treated as one service.

Input: the exchanges' table. Output: for each service, the one that represents it in learning. Two servers without a
name, on different hosts, look alike if
1. they listen on the same port,
2. at least half of the hosts that call the one with fewer callers also call the other,
3. and their requests and answers have similar sizes: their distributions over octaves of request and response bytes
   overlap by at least `MIN_SIZE_OVERLAP`.

Limits: two services with the same port, callers and sizes by accident are treated as one. A request that makes one call
to each is then learned as making two calls of one kind, each to a different server (`one_each` in the core's
`links/src/host_links.rs`), which is equivalent.
"""

from collections.abc import Mapping

import polars as pl
import pyarrow as pa
from msgspec import Struct

MIN_SIZE_OVERLAP = 0.5
"""Overlap of the size distributions of two servers' exchanges: large for replicas, small for different services."""
MIN_COMMON_CALLERS_SHARE = 0.5
COLUMNS = ["client_host", "server_host", "service", "method", "request_bytes", "response_bytes"]
OCTAVES_COUNT = 64
UNNAMED = r"^(.*):(\d+)$"


class _Server(Struct, frozen=True):
    """A server without a name: its callers, and the distribution of its exchanges' sizes."""

    service: str
    callers: frozenset[str]
    sizes: Mapping[int, float]

    def looks_like(self, other: "_Server") -> bool:
        fewer = min(len(self.callers), len(other.callers))
        if len(self.callers & other.callers) < max(1.0, MIN_COMMON_CALLERS_SHARE * fewer):
            return False
        return sum(min(share, other.sizes.get(size, 0.0)) for size, share in self.sizes.items()) >= MIN_SIZE_OVERLAP


def merge_like_servers(exchanges: pa.Table) -> pa.Table:
    """`exchanges`, with `service` of servers that look alike replaced by that of the first of them.

    Arguments: columns of `collector.trace.schema.EXCHANGES`.
    """
    stand_ins = like_servers(pl.DataFrame(exchanges.select(COLUMNS)))
    if not stand_ins:
        return exchanges
    place = exchanges.schema.get_field_index("service")
    field = exchanges.schema.field("service")
    names = pl.DataFrame(exchanges.select(["service"]))["service"].cast(pl.String).replace(stand_ins)
    return exchanges.set_column(place, field, names.to_arrow().cast(pa.string()).dictionary_encode().cast(field.type))


def like_servers(exchanges: pl.DataFrame) -> dict[str, str]:
    """For each service that looks like another one, that other service. Arguments: `exchanges` with `COLUMNS`."""
    unnamed = _without_name(exchanges)
    if len(unnamed) < 2:
        return {}
    own = exchanges.lazy().filter(pl.col("service").cast(pl.String).is_in(unnamed["service"].implode()))
    octaves = [(pl.col(name).fill_null(0).clip(0) + 1).log(2).floor().cast(pl.Int64) for name in COLUMNS[-2:]]
    sizes = own.group_by(pl.col("service").cast(pl.String), size=octaves[0] * OCTAVES_COUNT + octaves[1])
    counts = sizes.agg(pl.len(), pl.col("client_host").cast(pl.String).unique().drop_nulls()).collect()
    of_port: dict[str, list[_Server]] = {}
    stand_ins: dict[str, str] = {}
    for service, port in unnamed.sort("service").iter_rows():
        server = _server(service, counts.filter(pl.col("service") == service))
        known = of_port.setdefault(port, [])
        first = next((other for other in known if server.looks_like(other)), None)
        if first is None:
            known.append(server)
        else:
            stand_ins[service] = first.service
    return stand_ins


def _without_name(exchanges: pl.DataFrame) -> pl.DataFrame:
    """`service, port` of services that are named after their only server and of which no head was captured."""
    services = exchanges.group_by("service").agg(
        pl.col("server_host").cast(pl.String).unique().first(),
        pl.col("server_host").n_unique().alias("hosts"),
        pl.col("method").is_not_null().any().alias("seen"),
    )
    named = services.with_columns(pl.col("service").cast(pl.String)).with_columns(
        host=pl.col("service").str.extract(UNNAMED, 1), port=pl.col("service").str.extract(UNNAMED, 2)
    )
    own = (pl.col("host") == pl.col("server_host")) & (pl.col("hosts") == 1) & ~pl.col("seen")
    return named.filter(own).select("service", "port")


def _server(service: str, counts: pl.DataFrame) -> _Server:
    """Arguments: `counts`, with `size, len, client_host` of its exchanges by size."""
    total = counts["len"].sum()
    return _Server(
        service,
        frozenset(counts["client_host"].explode().drop_nulls().to_list()),
        {size: count / total for size, count in counts.select("size", "len").iter_rows()},
    )
