"""Builds the table `findings` of a trace.

1. Each family (`kinds.FAMILIES`) judges what the trace shows, and returns its findings.
2. Findings that gaps of the captures may explain become notices (`captures.py`).
3. Findings that follow from others become notices that name their cause (`causes.py`).
4. Findings about slow hosts show what these hosts used (`usage.py`).
"""

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from collector import _core
from collector.execution import memory
from collector.execution.long_columns import MOST_IN_MEMORY_ROWS
from collector.findings.capture_gaps import missed_by_host
from collector.findings.captures import with_doubts
from collector.findings.causes import Callers, Place, with_causes
from collector.findings.finding import Finding, as_table
from collector.findings.kinds import FAMILIES
from collector.findings.observations import Observations, Parts
from collector.findings.requests import Requests, requests_of
from collector.findings.symptoms import Symptoms, collect_symptoms, merge_symptoms
from collector.findings.thresholds import DEFAULTS, Thresholds
from collector.findings.usage import Usage
from collector.hops.captured_until import CapturedUntil
from collector.hops.counts import hop_counts
from collector.requests.critical_path import NONE
from collector.requests.streams import requests_of as without_streams
from collector.services.rings import NO_PLACES, Places
from collector.trace.model import TraceInfo
from collector.trace.schema import STREAMS

T = TypeVar("T")
STREAM_ENDS = ("client_host", "server_host")
NO_STREAMS = STREAMS.empty_table().select(STREAM_ENDS)


def find(tables: Mapping[str, pa.Table], info: TraceInfo, thresholds: Thresholds = DEFAULTS) -> pa.Table:
    """The table `findings` of a whole trace in memory.

    Arguments: `tables` by name, with at least `hops, connections, exchanges, spans, clocks`; the trace's `info`.
    """
    hops, exchanges = tables["hops"], tables["exchanges"]
    end_ns = pc.max(pc.coalesce(hops["send_trace_ns"], hops["receive_trace_ns"])).as_py() or 0
    captured, connections = CapturedUntil(end_ns), [tables["connections"]]
    counts = hop_counts(hops, by_flow=False, late_ns=thresholds.network.late_least_ns)
    symptoms = collect_symptoms(
        hops, tables["connections"], exchanges, captured, counts=counts, limits=thresholds.of_symptoms
    )
    return build_findings(
        merge_symptoms([symptoms]), [without_streams(exchanges)], [tables["spans"]], tables["clocks"], info, captured,
        connections=lambda _: connections, thresholds=thresholds, streams=lambda _: [exchanges],
        stream_ends=exchanges.filter(exchanges["is_stream"]),
    )  # fmt: skip


def build_findings(
    symptoms: Symptoms,
    exchanges: Iterable[pa.Table],
    spans: Iterable[pa.Table],
    clocks: pa.Table,
    info: TraceInfo,
    captured: CapturedUntil,
    samples: pa.Table | None = None,
    connections: Parts | None = None,
    rings: Places = NO_PLACES,
    thresholds: Thresholds = DEFAULTS,
    turns: Iterable[pa.Table] = (),
    streams: Parts | None = None,
    stream_ends: pa.Table = NO_STREAMS,
    spill: Path | None = None,
) -> pa.Table:
    """The table `findings`, from the symptoms of all connections, the requests, the hosts' own counters, the clocks.

    Arguments: parts of `exchanges` and of `spans`, as for `requests_of`; parts of `connections`; `captured`, until when
    captures ran; `rings`, which devices the ring files assign; `turns`, parts of `exchanges` that are turns of streams
    on which each side answers the other; `streams`, parts of `exchanges`; `stream_ends`, the table `streams` with
    `STREAM_ENDS`; `spill`, where files go that hold what does not fit in memory.
    """
    seen = Observations(
        symptoms, requests_of(exchanges, spans, spill), requests_of(turns, (), spill), clocks, info, captured,
        missed_by_host(symptoms, info, clocks), samples, connections, streams, rings,
        thresholds.severity,
    )  # fmt: skip
    memory.give_back_if_much()
    caused = with_causes(
        with_doubts(_of_all_families(seen, thresholds), seen.missed, info),
        _callers(seen.requests, stream_ends),
        _service_callers(seen.requests),
        thresholds.causes,
    )
    return as_table(Usage(samples, clocks, thresholds.usage).with_usage(caused), thresholds.severity)


def _of_all_families(seen: Observations, thresholds: Thresholds) -> list[Finding]:
    """The findings of all families: of a long trace one after the other, since what they hold meanwhile adds up."""
    if len(seen.requests.group) > MOST_IN_MEMORY_ROWS:
        found: list[Finding] = []
        for family in FAMILIES:
            found += _of_family(family, seen, thresholds)
            memory.give_back_if_much()
        return found
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        families = pool.map(lambda family: _of_family(family, seen, thresholds), FAMILIES)
        return [finding for family in families for finding in family]


def _of_family(family: str, seen: Observations, thresholds: Thresholds) -> list[Finding]:
    """The findings of one of `FAMILIES`; its thresholds are the group of the same name, if there is one."""
    find = import_module(f"collector.findings.{family}").find
    limits = getattr(thresholds, family, None)
    return list(find(seen) if limits is None else find(seen, limits))


def _callers(requests: Requests, streams: pa.Table) -> Callers:
    """For each host, all hosts that call it, through any number of others, by requests or in streams."""
    ends = pl.DataFrame(streams.select(STREAM_ENDS)).select(pl.col(STREAM_ENDS).cast(pl.String))
    asked = requests.groups.select(pl.col(STREAM_ENDS).cast(pl.String))
    pairs = pl.concat([asked, ends]).drop_nulls().unique(maintain_order=True).rows()
    return _all_callers((server, client) for client, server in pairs if client != server)


def _service_callers(requests: Requests) -> Mapping[Place, frozenset[Place]]:
    """For each service, the services that call it, through any number of others, as far as links show them."""
    pairs: set[tuple[int, int]] = set()
    for which, _ in requests.slices():
        parent = requests.parent[which]
        is_child = parent != NONE
        group = [requests.group[which][is_child], requests.group[parent[is_child]]]
        _, first = _core.row_groups(group)
        pairs.update(zip(*(each[first].tolist() for each in group), strict=True))
    places: list[Place] = requests.groups.select(pl.col("server_host", "service").cast(pl.String)).rows()
    return _all_callers((places[of], places[by]) for of, by in sorted(pairs) if places[of] != places[by])


def _all_callers(pairs: Iterable[tuple[T, T]]) -> Mapping[T, frozenset[T]]:
    """From pairs (called, caller): for each callee, all its callers, direct and indirect."""
    direct: dict[T, set[T]] = {}
    for called, caller in pairs:
        direct.setdefault(called, set()).add(caller)
    return {called: frozenset(_reachable(called, direct)) for called in direct}


def _reachable(start: T, neighbours: Mapping[T, Iterable[T]]) -> set[T]:
    reached, waiting = set[T](), [start]
    while waiting:
        for neighbour in neighbours.get(waiting.pop(), ()):
            if neighbour not in reached:
                reached.add(neighbour)
                waiting.append(neighbour)
    return reached - {start}
