"""Where logs are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Where logs are, and the zones of stamps that name none, by host; `EVERY` (`logs.reading`) for all others."""

    places: tuple[str, ...] = ()
    zones: Mapping[str, tzinfo] = field(default_factory=dict)
