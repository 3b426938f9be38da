"""Queries of a trace for a viewer: one typed result for each query, computed only from the tables.

`open_trace` returns a `TraceView` with the queries about packets and requests. Nothing is corrected here: data missing
in the tables is missing in the results.
"""

from collector.annotations.agreement import Said, heading_of
from collector.hops.quality import ConnectionQuality, HostPair
from collector.hops.quality_summary import NAMES as PAIRING_NAMES
from collector.hops.quality_summary import Pairing, connection_name, pair_name, trouble_words
from collector.queries.annotations import NO_REQUEST, AnnotationCounts, Annotations, OneAnnotation
from collector.queries.answers import Arrows, Command, Hop, Lane, Problem, Request, Summary
from collector.queries.bench_join import RunJoin
from collector.queries.bench_runs import PERCENTILES as RUN_PERCENTILES
from collector.queries.bench_runs import (
    BenchRun,
    HostUse,
    Operation,
    find_runs,
    may_be_of,
    read_run,
    run_overlaps,
    slowest_operations,
)
from collector.queries.bench_words import join_words
from collector.queries.captured import (
    CaptureDescription,
    CapturedPacket,
    captured_packet,
    describe_capture,
    packet_file,
    write_pcapng,
)
from collector.queries.comparing import compare_found, compare_servers
from collector.queries.lane_bands import LaneBands, Served
from collector.queries.latency import PERCENTILES, AtConcurrency, Durations, Flight, Scatter
from collector.queries.live import is_live, live_error, made_ns
from collector.queries.load import ORDERS, Load, RequestRow, RequestSelection
from collector.queries.marks import Mark, faults, findings, load_steps, uncovered_marks
from collector.queries.merged_capture import write_merged
from collector.queries.overlay import STEPS as ROWS_PER_LANE
from collector.queries.overlay import Overlay as RequestOverlay
from collector.queries.request_table import RequestClass
from collector.queries.search import SearchHits, TraceSearch
from collector.queries.selection import Selection, write_csv, write_parquet, write_requests
from collector.queries.series import (
    Choice,
    Course,
    PeriodFacts,
    PeriodState,
    SeriesClass,
    SeriesPart,
    SeriesView,
    Slow,
    Stretch,
    open_series,
)
from collector.queries.service_graph import Edge, Node, ServiceGraph
from collector.queries.span_trees import Span
from collector.queries.timeline.columns import (
    KINDS,
    MISSING_NS,
    NO_LANE,
    NO_SERVICE,
    PROBLEM_CLASSES,
    STATES,
    UNCERTAINTY_UNKNOWN,
    ArrowClass,
    Pairs,
)
from collector.queries.timeline.windows import DensityCounts, EndCounts
from collector.queries.trace_view import TraceView, check_trace, open_trace
from collector.queries.usage import Strip, Usage
from collector.reporting.comparison import Comparison, Group, KindComparison, StageDifference
from collector.reporting.story import Story
from collector.reporting.stream_summary import StreamLine, StreamSummary, group_words
from collector.requests.spans import LEDGER_COLUMNS
from collector.series.series import Entry as SeriesEntry
from collector.services.ends import end_name
from collector.trace.durations import in_words
from collector.trace.model import CounterInfo
from collector.trace.objects import ReadCount
from collector.trace.packets import PacketFields
from collector.trace.schema import HopKind, HopState, MessageKinds

__all__ = [
    "KINDS",
    "LEDGER_COLUMNS",
    "MISSING_NS",
    "NO_LANE",
    "NO_REQUEST",
    "NO_SERVICE",
    "ORDERS",
    "PAIRING_NAMES",
    "PERCENTILES",
    "PROBLEM_CLASSES",
    "ROWS_PER_LANE",
    "RUN_PERCENTILES",
    "STATES",
    "UNCERTAINTY_UNKNOWN",
    "AnnotationCounts",
    "Annotations",
    "ArrowClass",
    "Arrows",
    "AtConcurrency",
    "BenchRun",
    "CaptureDescription",
    "CapturedPacket",
    "Choice",
    "Command",
    "Comparison",
    "ConnectionQuality",
    "CounterInfo",
    "Course",
    "DensityCounts",
    "Durations",
    "Edge",
    "EndCounts",
    "Flight",
    "Group",
    "Hop",
    "HopKind",
    "HopState",
    "HostPair",
    "HostUse",
    "KindComparison",
    "Lane",
    "LaneBands",
    "Load",
    "Mark",
    "MessageKinds",
    "Node",
    "OneAnnotation",
    "Operation",
    "PacketFields",
    "Pairing",
    "Pairs",
    "PeriodFacts",
    "PeriodState",
    "Problem",
    "ReadCount",
    "Request",
    "RequestClass",
    "RequestOverlay",
    "RequestRow",
    "RequestSelection",
    "RunJoin",
    "Said",
    "Scatter",
    "SearchHits",
    "Selection",
    "SeriesClass",
    "SeriesEntry",
    "SeriesPart",
    "SeriesView",
    "Served",
    "ServiceGraph",
    "Slow",
    "Span",
    "StageDifference",
    "Story",
    "StreamLine",
    "StreamSummary",
    "Stretch",
    "Strip",
    "Summary",
    "TraceSearch",
    "TraceView",
    "Usage",
    "captured_packet",
    "check_trace",
    "compare_found",
    "compare_servers",
    "connection_name",
    "describe_capture",
    "end_name",
    "faults",
    "find_runs",
    "findings",
    "group_words",
    "heading_of",
    "in_words",
    "is_live",
    "join_words",
    "live_error",
    "load_steps",
    "made_ns",
    "may_be_of",
    "open_series",
    "open_trace",
    "packet_file",
    "pair_name",
    "read_run",
    "run_overlaps",
    "slowest_operations",
    "trouble_words",
    "uncovered_marks",
    "write_csv",
    "write_merged",
    "write_parquet",
    "write_pcapng",
    "write_requests",
]
