"""Builds the table `findings`: runs all families of findings, then determines which finding is the cause of which."""

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from collector.execution import memory
from collector.findings.answers import answer_findings
from collector.findings.captures import capture_findings, missed_by_host, stamp_findings, with_doubts
from collector.findings.causes import Askers, Place, with_causes
from collector.findings.clocks import clock_findings
from collector.findings.connections import connection_findings
from collector.findings.endings import ending_findings
from collector.findings.finding import Finding, as_table
from collector.findings.kernel_counters import sample_findings
from collector.findings.network import Links
from collector.findings.pace import pace_findings
from collector.findings.placement import placement_findings
from collector.findings.ports import Parts, port_findings
from collector.findings.requests import Requests, requests_of
from collector.findings.stalls import stall_findings
from collector.findings.symptoms import Symptoms, collect_symptoms, merge_symptoms
from collector.findings.usage import Usage
from collector.hops.captured_until import CapturedUntil
from collector.requests.critical_path import NONE
from collector.services.rings import NO_PLACES, Places
from collector.services.service_names import ServiceNames
from collector.trace.model import TraceInfo

T = TypeVar("T")


def find(tables: Mapping[str, pa.Table], info: TraceInfo) -> pa.Table:
    """The table `findings` of a whole trace in memory.

    Arguments: `tables` by name, with at least `hops, connections, exchanges, spans, clocks`; the trace's `info`.
    """
    hops, exchanges = tables["hops"], tables["exchanges"]
    end_ns = pc.max(pc.coalesce(hops["send_trace_ns"], hops["receive_trace_ns"])).as_py() or 0
    captured = CapturedUntil(end_ns)
    troubles = collect_symptoms(hops, tables["connections"], exchanges, captured)
    parts = merge_symptoms([troubles])
    connections = [tables["connections"]]
    return build_findings(
        parts, [exchanges], tables["spans"], tables["clocks"], info, captured, connections=lambda: connections
    )


def build_findings(
    troubles: Symptoms,
    exchanges: Iterable[pa.Table],
    spans: pa.Table,
    clocks: pa.Table,
    info: TraceInfo,
    captured: CapturedUntil,
    samples: pa.Table | None = None,
    connections: Parts | None = None,
    rings: Places = NO_PLACES,
) -> pa.Table:
    """The table `findings`, from the symptoms of all connections, the requests, the hosts' own counters, the clocks.

    Arguments: parts of `exchanges`, with at least `requests.EXCHANGE_COLUMNS`; parts of `connections`, with
    `ports.CONNECTION_COLUMNS`; `captured`, until when captures ran; `rings`, which devices the ring files
    assign.
    """
    requests, usage = requests_of(exchanges, spans), Usage(samples, clocks)
    memory.give_back()
    missed = missed_by_host(troubles, info, clocks)
    families: list[Callable[[], Iterable[Finding]]] = [
        lambda: Links(troubles, requests).findings(),
        lambda: stall_findings(troubles, requests.total_ns),
        lambda: port_findings(connections, clocks),
        lambda: connection_findings(troubles, requests, ServiceNames(info.services)),
        lambda: answer_findings(troubles, requests, captured),
        lambda: ending_findings(troubles, requests),
        lambda: pace_findings(requests),
        lambda: placement_findings(requests, troubles.in_vain, connections, rings),
        lambda: usage.findings(requests),
        lambda: sample_findings(samples, clocks),
        lambda: capture_findings(troubles, missed),
        lambda: stamp_findings(info),
        lambda: clock_findings(clocks, info),
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [finding for family in pool.map(lambda build: list(build()), families) for finding in family]
    caused = with_causes(with_doubts(found, missed, info), _askers(requests), _asked_by(requests))
    return as_table(usage.beside(caused))


def _askers(requests: Requests) -> Askers:
    """For each host, all hosts that call it, through any number of others."""
    pairs = requests.groups.select("client_host", "server_host").drop_nulls().unique().rows()
    return _through_others((server, client) for client, server in pairs if client != server)


def _asked_by(requests: Requests) -> Mapping[Place, frozenset[Place]]:
    """For each service, the services that call it, through any number of others, as far as links show them."""
    children = np.flatnonzero(requests.parent != NONE)
    pairs = np.unique(np.stack((requests.group[children], requests.group[requests.parent[children]])), axis=1)
    places: list[Place] = requests.groups.select(pl.col("server_host", "service").cast(pl.String)).rows()
    return _through_others((places[of], places[by]) for of, by in pairs.T.tolist() if places[of] != places[by])


def _through_others(pairs: Iterable[tuple[T, T]]) -> Mapping[T, frozenset[T]]:
    """From pairs (called, caller): for each callee, all its callers, direct and indirect."""
    asked_by: dict[T, set[T]] = {}
    for asked, asker in pairs:
        asked_by.setdefault(asked, set()).add(asker)
    return {asked: frozenset(_all_callers(asked, asked_by)) for asked in asked_by}


def _all_callers(host: T, asked_by: Mapping[T, Iterable[T]]) -> set[T]:
    reached, waiting = set[T](), [host]
    while waiting:
        for asker in asked_by.get(waiting.pop(), ()):
            if asker not in reached:
                reached.add(asker)
                waiting.append(asker)
    return reached - {host}
