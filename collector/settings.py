"""What a collector service is told when it starts. Each setting is an option of `tracer collect`."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CollectorSettings:
    """Of one collector."""

    data: Path  # directory: sessions/<session>/<host>/ holds what came in, traces/<session>/ what was made of it
    token: str = ""  # agents must show it; empty = none asked
    segment_limit_bytes: int = 256 << 20  # a larger segment is refused; agents send 16 MiB
