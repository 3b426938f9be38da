"""What a trace shows, as every family of findings takes it."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa
from msgspec import Struct

from collector.findings.capture_gaps import Missed
from collector.findings.finding import SeverityThresholds
from collector.findings.requests import Requests
from collector.findings.symptoms import Symptoms
from collector.hops.captured_until import CapturedUntil
from collector.services.rings import Places
from collector.trace.model import TraceInfo

Parts = Callable[[Sequence[str]], Iterable[pa.Table]]
"""Returns a new iteration over the parts of a table, with at least the given columns."""


class Observations(Struct, frozen=True):
    """The symptoms and tables of a trace, and the thresholds that all families share."""

    symptoms: Symptoms  # of all partitions
    requests: Requests
    turns: Requests  # turns of streams on which each side answers the other (`requests.streams`); without spans
    clocks: pa.Table
    info: TraceInfo
    captured: CapturedUntil  # until when captures ran
    missed: Mapping[str, Missed]  # by host, the packets that its capture missed
    samples: pa.Table | None  # the hosts' own counters, if they were sampled
    connections: Parts | None  # parts of `connections`, if needed
    streams: Parts | None  # parts of `exchanges`, if needed
    rings: Places  # which devices the ring files assign
    severity: SeverityThresholds
