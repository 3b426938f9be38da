"""The settings of a collector service. Each is an option of `tracer collect`."""

from dataclasses import dataclass
from pathlib import Path

from collector.findings.thresholds import DEFAULTS, Thresholds
from collector.service.periods import NO_PERIODS, PeriodSettings
from collector.service.retention import KEEP_ALL, RetentionLimits
from collector.service.trigger_settings import NO_TRIGGERS, TriggerSettings


@dataclass(frozen=True, slots=True)
class CollectorSettings:
    """Of one collector."""

    data: Path  # directory: sessions/<session>/<host>/ holds what came in, traces/<session>/ what was made of it
    token: str = ""  # agents must show it; empty = none asked
    live_window_seconds: float = 0.0  # of a session's newest segments are analysed as they arrive; 0 = none
    live_limit_bytes: int = 64 << 20  # segments of one live window; bounds the memory of a round
    segment_limit_bytes: int = 256 << 20  # a larger segment is refused; agents send 16 MiB
    local_only: bool = False  # it can be reached from this machine alone, and answers under its own names only
    retention: RetentionLimits = KEEP_ALL  # what is kept of each session
    names: tuple[tuple[str, str], ...] = ()  # what the operator calls servers: `HOST:PORT` and the name
    thresholds: Thresholds = DEFAULTS  # by which findings are judged
    triggers: TriggerSettings = NO_TRIGGERS
    periods: PeriodSettings = NO_PERIODS  # sessions are analysed hour by hour
    shared: bool = False  # other collectors use the same directory
