"""The agents' status as metrics of Prometheus, at `/metrics`.

Source: Prometheus' text format, https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from collector.service.agents import AgentStatus
from collector.service.periods import SeriesSummary

REPORTING = ("capturing", "stopped")
LABELS = ("session", "host", "incarnation")
Value = Callable[[AgentStatus], float | None]
COUNTERS: tuple[tuple[str, str, Value], ...] = (
    ("packets", "Packets that were captured.", lambda each: each.packets_count),
    ("dropped_packets", "Packets for which the ring had no room.", lambda each: each.dropped_count),
    ("sent_segments", "Segments that the collector acknowledged.", lambda each: each.sent_count),
    (
        "left_out_packets",
        "Packets of connections that the agent's CPU budget did not allow to keep.",
        lambda each: each.left_out_count,
    ),
    ("lost_segments", "Segments that were lost or refused.", lambda each: each.lost_count),
    ("collector_switches", "Times its segments went on to another collector.", lambda each: each.switches_count),
    ("tls_failures", "Its attempts to reach the collector that TLS ended.", lambda each: each.tls_failures_count),
)
GAUGES: tuple[tuple[str, str, Value], ...] = (
    (
        "up",
        "1 while the agent reports; 0 if it is silent or has ended.",
        lambda each: each.state in REPORTING,
    ),
    ("away", "1 while another collector should take its segments, and does not.", lambda each: each.away),
    ("problems", "Things that are wrong with the agent; /api/agents says which.", lambda each: len(each.problems)),
    ("last_seen_seconds", "Time since its last report.", lambda each: each.last_seen_ns / 1e9),
    ("lag_seconds", "Age of the oldest segment that is not delivered.", lambda each: each.lag_ns / 1e9),
    ("spool_bytes", "Bytes that wait in the agent's spool.", lambda each: each.spool_bytes),
    ("spool_limit_bytes", "Most that the spool may hold.", lambda each: each.spool_limit_bytes),
    ("cpu_cores", "CPU time of the agent for each second.", lambda each: each.cpu_share),
    ("cpu_budget_cores", "CPU time for each second that the agent may use.", lambda each: each.cpu_budget_share),
    ("kept_connections_share", "Share of connections that the agent keeps.", lambda each: 1 / each.one_in),
    ("kept_head_bytes", "Bytes of heads kept, where it is less than all.", lambda each: each.head_bytes),
    ("memory_bytes", "Resident memory of the agent.", lambda each: each.memory_bytes),
    ("clock_ahead_least_seconds", "Its clock is at least so far ahead.", lambda each: _seconds(each, 0)),
    ("clock_ahead_most_seconds", "Its clock is at most so far ahead.", lambda each: _seconds(each, 1)),
)


def metrics_text(
    agents: Sequence[AgentStatus],
    refused: Mapping[str, int],
    refused_ns: Mapping[str, int],
    *,
    does_chores: bool = True,
    series: Sequence[SeriesSummary] = (),
) -> bytes:
    """All metrics in Prometheus' text format.

    Arguments: `refused`, connections by the reason for which TLS refused them; `refused_ns`, when the last one was;
        `does_chores`, whether this collector joins, deletes and makes live traces for all that share its data;
        `series` of sessions.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(agents, refused, refused_ns, does_chores, series))
    return generate_latest(registry)


class _Metrics(Collector):
    def __init__(
        self,
        agents: Sequence[AgentStatus],
        refused: Mapping[str, int],
        refused_ns: Mapping[str, int],
        does_chores: bool,
        series: Sequence[SeriesSummary],
    ) -> None:
        self._agents, self._refused, self._refused_ns = agents, refused, refused_ns
        self._does_chores, self._series = does_chores, series

    def collect(self) -> Iterator[Metric]:
        """Each metric with the samples of all agents."""
        for family, wanted in ((CounterMetricFamily, COUNTERS), (GaugeMetricFamily, GAUGES)):
            for name, text, value in wanted:
                metric = family(f"twintap_agent_{name}", text, labels=LABELS)
                _add(metric, self._agents, value)
                yield metric
        text = "Connections that TLS refused: no certificate, one of another authority, an expired one, plain HTTP …"
        metric = CounterMetricFamily("twintap_collector_refused_connections", text, labels=("reason",))
        for reason, count in self._refused.items():
            metric.add_metric((reason,), count)
        yield metric
        last = GaugeMetricFamily(
            "twintap_collector_last_refused_timestamp_seconds", "When TLS refused the last one.", labels=["reason"]
        )
        for reason, at_ns in self._refused_ns.items():
            last.add_metric((reason,), at_ns / 1e9)
        yield last
        text = "1 if this collector joins and deletes segments and makes live traces, for all that share its data."
        yield GaugeMetricFamily("twintap_collector_does_chores", text, value=float(self._does_chores))
        text = "For how long the next period of a session has been due."
        behind = GaugeMetricFamily("twintap_collector_periods_behind_seconds", text, labels=["session"])
        text = "Periods of a session: whose trace is kept, whose summary alone is, or of which no trace could be made."
        counts = GaugeMetricFamily("twintap_collector_periods", text, labels=["session", "state"])
        for each in self._series:
            behind.add_metric((each.session,), each.behind_seconds)
            counts.add_metric((each.session, "trace"), each.traces_count)
            counts.add_metric((each.session, "summary"), each.summaries_count)
            counts.add_metric((each.session, "failed"), each.failed_count)
        yield behind
        yield counts


def _add(metric: CounterMetricFamily | GaugeMetricFamily, agents: Iterable[AgentStatus], value: Value) -> None:
    for each in agents:
        measured = value(each)
        if measured is not None:
            metric.add_metric((each.session, each.host, each.incarnation), float(measured))


def _seconds(agent: AgentStatus, which: int) -> float | None:
    return None if agent.clock_ahead_ns is None else agent.clock_ahead_ns[which] / 1e9
