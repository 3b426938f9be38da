"""Searches by who owns connections."""

import numpy as np
import polars as pl

from collector.queries.search import search
from collector.queries.search_rules import Searched
from collector.reporting.peers import NO_PEERS, with_peers
from collector.trace.schema import TABLES, conform

OWNERS = {
    "client_process": ["curl", "psql", None],
    "client_pid": [812, 900, None],
    "client_user": ["alice", "bob", None],
    "server_process": ["nginx", "postgres", "nginx"],
    "server_pid": [7, 8, None],
    "server_unit": ["nginx.service", "postgresql@15-main.service", None],
    "server_container": [None, None, "3f2a1b0c4d5e"],
    "server_pod": [None, None, "web-0"],
}


def hits_of(query: str) -> list[int] | None:
    """The connections that a query finds, of three without a request; None if it is no query."""
    connections = {"connection_id": [1, 2, 3], "first_host_ns": [1, 2, 3]} | OWNERS
    tables = {name: pl.DataFrame(TABLES[name].empty_table()) for name in ("streams", "exchanges")}
    given = pl.DataFrame(conform("connections", pl.DataFrame(connections).to_arrow()))
    given = given.with_columns(pl.col(pl.Categorical).cast(pl.String))
    spans = tables["exchanges"].with_columns(request=pl.lit(0, pl.Int64))
    spans, streams, given = (with_peers(each, NO_PEERS) for each in (spans, tables["streams"], given))
    hits = search(query, Searched(spans, streams, given, np.zeros(0, np.int64)))
    return None if hits.problem else hits.connections.tolist()


def test_connections_are_found_by_their_owners() -> None:
    cases = {
        "process:nginx": [1, 3],
        "process:NGINX user:alice": [1],
        "user:bob": [2],
        "pid:7": [1],
        "pid:812": [1],
        "pid:81": [],
        "pid:x": None,
        "unit:postgresql": [2],
        "container:3f2a": [3],
        "pod:web-0": [3],
    }
    assert {query: hits_of(query) for query in cases} == cases
