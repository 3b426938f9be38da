"""What a viewer asks of a trace: one typed answer for each question, all of it from the tables.

`open_trace` gives a `TraceView`, which answers questions about packets and requests. Nothing is corrected here: what
the tables lack, the answers lack.
"""

from collector.comparison import Comparison, Group, KindComparison, StageDifference
from collector.durations import in_words, with_uncertainty
from collector.packets import PacketFields
from collector.pairing import NAMES as PAIRING_NAMES
from collector.pairing import Pairing, connection_name, pair_name, trouble_words
from collector.quality import ConnectionQuality, HostPair
from collector.queries.answers import Arrows, Command, Hop, Lane, Problem, Request, Summary
from collector.queries.captured import (
    CaptureDescription,
    CapturedPacket,
    captured_packet,
    describe_capture,
    packet_file,
    write_pcapng,
)
from collector.queries.live import is_live, made_ns
from collector.queries.search import SearchHits, TraceSearch
from collector.queries.selection import Selection, write_csv, write_parquet
from collector.queries.trace_view import TraceView, open_trace
from collector.schema import HopKind, HopState
from collector.span_trees import Span
from collector.spans import LEDGER_COLUMNS
from collector.store import CounterInfo
from collector.story import Story
from collector.timeline.columns import (
    KINDS,
    MISSING_NS,
    NO_LANE,
    NO_SERVICE,
    STATES,
    UNCERTAINTY_UNKNOWN,
    ArrowClass,
    Pairs,
)
from collector.timeline.windows import DensityCounts, EndCounts

__all__ = [
    "KINDS",
    "LEDGER_COLUMNS",
    "MISSING_NS",
    "NO_LANE",
    "NO_SERVICE",
    "PAIRING_NAMES",
    "STATES",
    "UNCERTAINTY_UNKNOWN",
    "ArrowClass",
    "Arrows",
    "CaptureDescription",
    "CapturedPacket",
    "Command",
    "Comparison",
    "ConnectionQuality",
    "CounterInfo",
    "DensityCounts",
    "EndCounts",
    "Group",
    "Hop",
    "HopKind",
    "HopState",
    "HostPair",
    "KindComparison",
    "Lane",
    "PacketFields",
    "Pairing",
    "Pairs",
    "Problem",
    "Request",
    "SearchHits",
    "Selection",
    "Span",
    "StageDifference",
    "Story",
    "Summary",
    "TraceSearch",
    "TraceView",
    "captured_packet",
    "connection_name",
    "describe_capture",
    "in_words",
    "is_live",
    "made_ns",
    "open_trace",
    "packet_file",
    "pair_name",
    "trouble_words",
    "with_uncertainty",
    "write_csv",
    "write_parquet",
    "write_pcapng",
]
