"""Which processes serve: for each server of a trace, those that own its ends of connections, as agents found them.

Input: `connections` with `COLUMNS`; output: lines, the busiest server first. Processes are distinguished as in the
timeline (`owner_group`), so the workers of a server are one line, which says how many there are. Of a server whose
owners no agent states nothing is said.
"""

from collections.abc import Iterable
from itertools import chain

import polars as pl
import pyarrow as pa
from msgspec import Struct

from collector.hops.owner_words import owner_group
from collector.services.service_names import OF_CONNECTIONS, ServiceNames, endpoints_of, host_and_port
from collector.trace.schema import CONNECTIONS

_OWNER = ("process", "user", "unit", "container", "pod")
SHOWING_OWNER = tuple(f"server_{name}" for name in _OWNER)
"""Columns of `connections` of which at least one is known where an agent states who owns the server's end."""
COLUMNS = (*OF_CONNECTIONS, *SHOWING_OWNER, "server_pid")


class ServedBy(Struct, frozen=True):
    """A server and one process, or group of them, that serves there."""

    service: str  # its name, "host:port" where it has none
    server: str  # "host:port"
    process: str  # as `owner_group` has it
    user: str | None
    pids_count: int  # distinct ones; 0 = not known
    connections_count: int


def served_by(connections: Iterable[pa.Table], names: ServiceNames) -> tuple[ServedBy, ...]:
    """A line for each server and group of processes, the busiest first. Arguments: `connections` in parts;
    those without an owner may be left out."""
    none = CONNECTIONS.empty_table().select(COLUMNS)
    parts = pl.concat(map(_owners_of, chain([none], connections)))
    owners = parts.group_by("host", "port", *_OWNER).agg(
        pids=pl.col("pids").explode().drop_nulls().unique(), count=pl.col("count").sum()
    )
    named = owners.with_columns(
        group=pl.Series([owner_group(row) for row in owners.iter_rows(named=True)], dtype=pl.String)
    )
    groups = named.group_by("host", "port", "group", "user").agg(
        pids_count=pl.col("pids").explode().n_unique(),
        none=pl.col("pids").list.len().sum() == 0,
        count=pl.col("count").sum(),
    )
    lines = [
        ServedBy(
            service=names.of(row["host"], row["port"]),
            server=host_and_port(row["host"], row["port"]),
            process=row["group"],
            user=row["user"],
            pids_count=0 if row["none"] else row["pids_count"],
            connections_count=row["count"],
        )
        for row in groups.iter_rows(named=True)
    ]
    return tuple(sorted(lines, key=lambda line: (-line.connections_count, line.server, line.process, line.user or "")))


def _owners_of(connections: pa.Table) -> pl.DataFrame:
    """The owners of servers' ends: `host, port, _OWNER`, the distinct `pids`, and the `count` of connections."""
    ends = endpoints_of(connections)
    servers = pl.DataFrame(
        {"host": ends.hosts, "port": ends.ports}, schema={"host": pl.String, "port": pl.Int64}
    ).with_row_index("place")
    rows = pl.DataFrame(connections.select([f"server_{name}" for name in (*_OWNER, "pid")]))
    rows = rows.rename(lambda name: name.removeprefix("server_"))
    known = rows.with_columns(place=pl.Series(ends.place, dtype=pl.UInt32)).filter(
        pl.any_horizontal(pl.col(name).is_not_null() for name in _OWNER)
    )
    owners = known.group_by("place", *_OWNER).agg(pids=pl.col("pid").drop_nulls().unique(), count=pl.len())
    return owners.join(servers, on="place").with_columns(pl.col(pl.Categorical).cast(pl.String)).drop("place")


def served_words(line: ServedBy) -> tuple[str, str, str]:
    """Server, process and counts of a line, as reports show them."""
    server = line.server if line.service == line.server else f"{line.service} ({line.server})"
    user = f", user {line.user}" if line.user and line.process != f"user {line.user}" else ""
    counts = f"{line.pids_count:,} processes, " if line.pids_count > 1 else ""
    plural = "s" * (line.connections_count != 1)
    return server, f"{line.process}{user}", f"{counts}{line.connections_count:,} connection{plural}"
