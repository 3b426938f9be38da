"""From captures to a trace: decode, match, clocks, exchanges, spans, findings, each a pure stage over tables.

Live capture and offline replay both end here. The trace is written as a whole or not at all.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

import pyarrow as pa

from collector import clocks, findings, matching, spans
from collector.decoding import Decoded, HostSource, decode
from collector.exchanges import build_exchanges
from collector.schema import conform
from collector.services import known_services
from collector.store import CommandInfo, TraceInfo, write_trace
from collector.timescale import align
from collector.windows import settle_windows

__all__ = ["AnalysisOptions", "HostSource", "analyse"]


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """What the user may turn off."""

    align_clocks: bool = True
    """False leaves every host's clock as it is; then delays may be negative."""


def analyse(
    sources: Sequence[HostSource],
    trace_url: str,
    *,
    command: CommandInfo | None = None,
    options: AnalysisOptions = AnalysisOptions(),
) -> TraceInfo:
    """Run all stages over the captures of several hosts and write the trace.

    Arguments: `sources`, one for each host; `trace_url`, a directory or any fsspec URL; `command`, what ran meanwhile.
    Raises: `InputError` for a file that is no capture, or captures without a TCP packet; `ResourceError` if the trace
    cannot be written.
    """
    decoded = decode(sources)
    info = TraceInfo(
        created_ns=time.time_ns(),
        tool_version=version("twintap"),
        hosts=decoded.hosts,
        counters=decoded.counters,
        command=command,
        services=dict(known_services()),
    )
    tables = build_tables(decoded, info, options)
    with write_trace(trace_url) as writer:
        for name, table in tables.items():
            writer.write_table(name, table)
        writer.write_info(info)
    return info


def build_tables(decoded: Decoded, info: TraceInfo, options: AnalysisOptions) -> dict[str, pa.Table]:
    """All tables of a trace, by name: the stages in their order."""
    matched = matching.match(decoded.events)
    windows = [
        (host.host, host.first_host_ns, host.last_host_ns)
        for host in decoded.hosts
        if host.first_host_ns is not None and host.last_host_ns is not None
    ]
    alignment = clocks.solve(matched.hops, windows) if options.align_clocks else clocks.unaligned(windows)
    hops = settle_windows(align(matched.hops, alignment), decoded.hosts, alignment.clocks)
    hops = hops.append_column("exchange_id", pa.nulls(hops.num_rows, pa.int64()))
    messages = conform("messages", matching.messages(decoded.heads, matched.events))
    built = build_exchanges(conform("hops", hops), messages, conform("connections", matched.connections), info.services)
    tables = {
        "events": matched.events,
        "connections": matched.connections,
        "hops": built.hops,
        "clocks": alignment.clocks,
        "messages": messages,
        "exchanges": built.exchanges,
        "spans": spans.link(built.exchanges),
    }
    return tables | {"findings": findings.find(tables, info)}
