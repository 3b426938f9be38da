"""Finds when a request was, by the collector's clock: in a session's newest seconds, its trace, and its windows.

A trace's times are on its own timescale; a host's clock follows from the trace's table `clocks`, and by how much that
is ahead of the collector's from the agent's reports.
"""

import contextlib
from collections.abc import Iterable, Sequence

import numpy as np

from collector.hops.coverage import to_host_ns
from collector.queries.search import TraceSearch
from collector.queries.trace_view import TraceView, open_trace
from collector.service.agents import AgentStatus
from tracer.errors import InputError


def find_request(query: str, traces: Iterable[str], agents: Sequence[AgentStatus]) -> tuple[int, int, str] | None:
    """First and last moment of the requests that a query names, by the collector's clock, and the title of the first.

    Arguments: `traces`, those to look in; the first that has such a request counts. `agents` of the session.
    Raises: InputError for what is no query.
    """
    for url in traces:
        with contextlib.suppress(InputError):  # there is none, or it was replaced just now
            trace = open_trace(url)
            hits = TraceSearch(trace).hits(query)
            if hits.problem:
                break
            if len(hits.requests):
                first, last = trace.request(int(hits.requests[0])), trace.request(int(hits.requests[-1]))
                begin_ns = collector_ns(trace, first.start_ns, agents)
                end_ns = collector_ns(trace, last.end_ns, agents)
                return begin_ns, max(begin_ns, end_ns), first.title
    else:
        return None
    raise InputError(hits.problem, "see the search of the viewer's page")


def collector_ns(trace: TraceView, at_ns: int, agents: Sequence[AgentStatus]) -> int:
    """A time of a trace, in ns since its start, by the collector's clock."""
    hosts = {host.host for host in trace.info.hosts}
    known = [each for each in agents if each.host in hosts and each.clock_ahead_ns is not None]
    trace_ns = trace.start_ns + at_ns
    if not known:
        return trace_ns
    agent = min(known, key=lambda each: each.host)
    host_ns = int(to_host_ns(agent.host, np.array([trace_ns]), trace.stored.read("clocks"))[0])
    return host_ns - sum(agent.clock_ahead_ns or (0, 0)) // 2
