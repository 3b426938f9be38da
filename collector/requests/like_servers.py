"""Which servers do the same work, where nothing that they say shows it: for links only, which learn from many calls.

Replicas are one service where what they are asked shows it (`collector.services.service_names`). Where it does not
(TLS, captures without payload, few requests) each server is a service `HOST:PORT` of its own, and reports and views
leave it at that. Links are learned for calls of one kind; what goes to one of three replicas at random is a third of a
kind, of which no request makes a whole number. So for links servers are taken together that look alike from outside.

Input: the exchanges' table. Output: of each service the one in whose place it is learned from. Two servers without a
name, of different hosts, look alike if
1. they listen on the same port,
2. at least half of the hosts that ask the one that fewer ask also ask the other,
3. and their requests and answers have the same sizes: what both have in common of their distributions over octaves of
   request and response bytes is at least `LEAST_COMMON`.

Limits: two services that happen to have the same port, callers and sizes are taken together; a request that makes one
call to each is then learned as making two of one kind, of which each goes to another server (`one_each` in the core's
`links/src/host.rs`), which is the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

LEAST_COMMON = 0.5
"""Share of the sizes that two servers' exchanges have in common: most of replicas', few of different services'."""
LEAST_CALLERS = 0.5
COLUMNS = ["client_host", "server_host", "service", "method", "request_bytes", "response_bytes"]
OCTAVES = 64
UNNAMED = r"^(.*):(\d+)$"


@dataclass(frozen=True, slots=True)
class _Server:
    """A server without a name: who asks it, and how its exchanges' sizes are distributed."""

    service: str
    callers: frozenset[str]
    sizes: Mapping[int, float]

    def looks_like(self, other: "_Server") -> bool:
        fewer = min(len(self.callers), len(other.callers))
        if len(self.callers & other.callers) < max(1.0, LEAST_CALLERS * fewer):
            return False
        return sum(min(share, other.sizes.get(size, 0.0)) for size, share in self.sizes.items()) >= LEAST_COMMON


def learned_together(exchanges: pa.Table) -> pa.Table:
    """The same exchanges, `service` of servers that look alike being that of the first of them.

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
    """Of services that look like another, that one. Arguments: `COLUMNS`."""
    unnamed = _unnamed(exchanges)
    if len(unnamed) < 2:
        return {}
    own = exchanges.lazy().filter(pl.col("service").cast(pl.String).is_in(unnamed["service"].implode()))
    octaves = [(pl.col(name).fill_null(0).clip(0) + 1).log(2).floor().cast(pl.Int64) for name in COLUMNS[-2:]]
    sizes = own.group_by(pl.col("service").cast(pl.String), size=octaves[0] * OCTAVES + octaves[1])
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


def _unnamed(exchanges: pl.DataFrame) -> pl.DataFrame:
    """`service, port` of services that are called by their one server, and of which no head was seen."""
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
    """Arguments: of its exchanges `size, len, client_host` by size."""
    total = counts["len"].sum()
    return _Server(
        service,
        frozenset(counts["client_host"].explode().drop_nulls().to_list()),
        {size: count / total for size, count in counts.select("size", "len").iter_rows()},
    )
