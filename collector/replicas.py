"""Which replica each backend request went to: a primary of its partition, or a handoff that stood in for one.

The target names device and partition (`collector.services`). Every partition has as many primaries as are written to
together: the number of servers that one request most often writes to where it writes to several, by service (an object
server tells but one container server). Those devices of a partition that were asked most are its primaries, the others
handoffs.

Limits: without targets nothing is told. A primary that was down all through the trace was never asked, so the handoff
in its place counts as a primary.
"""

import polars as pl

from collector.services import PARTS, target_patterns

WRITES = ("PUT", "POST", "DELETE")
PRIMARY, HANDOFF = "primary", "handoff"
DEVICE = ["service", "partition", "server_host", "device"]
"""What tells a device that was asked for a partition."""


def located(exchanges: pl.DataFrame) -> pl.DataFrame:
    """`exchange_id` and the parts of its target (`PARTS`, null where it has none); services of known targets only."""
    found = [pl.DataFrame(schema={"exchange_id": pl.Int64} | dict.fromkeys(PARTS, pl.String))]
    service = exchanges["service"].cast(pl.String)
    for name, pattern in target_patterns().items():
        mine = exchanges.filter(service == name).select("exchange_id", "target")
        groups = mine["target"].str.extract_groups(pattern).struct
        parts = {part: groups.field(part) for part in PARTS if f"<{part}>" in pattern}
        found.append(mine.select("exchange_id", **parts))
    return pl.concat(found, how="diagonal")


def replica_roles(exchanges: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """`exchange_id, role` (`PRIMARY`, `HANDOFF`) of the requests that name a device and a partition.

    Arguments: the tables `exchanges` and `spans`.
    """
    parents = spans.select("parent_span_id", exchange_id="span_id").drop_nulls()
    named = exchanges.select(
        "exchange_id", *(pl.col(name).cast(pl.String) for name in ("service", "server_host", "method"))
    )
    placed = located(exchanges).drop_nulls(["device", "partition"])
    return roles_of(placed.join(named, on="exchange_id").join(parents, on="exchange_id"))


def roles_of(placed: pl.DataFrame) -> pl.DataFrame:
    """As `replica_roles`, of requests with device and partition, service, host, method and parent; without a parent
    they have no role."""
    asked = placed.filter(pl.col("parent_span_id").is_not_null())
    written = asked.filter(pl.col("method").is_in(WRITES)).group_by("service", "partition", "parent_span_id")
    together = written.len("replicas").group_by("service", "replicas").len("often")
    devices = asked.group_by(DEVICE, maintain_order=True).agg(asked=pl.len())
    return asked.join(device_roles(devices, together), on=DEVICE).select("exchange_id", "role")


def device_roles(devices: pl.DataFrame, together: pl.DataFrame) -> pl.DataFrame:
    """`DEVICE, role` of devices that were asked.

    Arguments: how often each of `DEVICE` was (`asked`); `service, replicas, often`: how often so many servers were
    written to together.
    """
    several = together.filter(pl.col("replicas") > 1).group_by("service", "replicas").agg(pl.col("often").sum())
    most = pl.col("often") == pl.col("often").max().over("service")
    usual = several.filter(most).group_by("service").agg(pl.col("replicas").max())
    rank = pl.col("asked").rank("ordinal", descending=True).over("service", "partition")
    devices = devices.with_columns(rank=rank).join(usual, on="service", maintain_order="left")
    role = pl.when(pl.col("rank") <= pl.col("replicas")).then(pl.lit(PRIMARY)).otherwise(pl.lit(HANDOFF))
    return devices.select(*DEVICE, role=role)
