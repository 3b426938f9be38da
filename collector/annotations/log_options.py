"""Where logs are."""

from collections.abc import Mapping
from datetime import tzinfo

from msgspec import Struct, field


class LogOptions(Struct, frozen=True):
    """Where logs are, and the zones of stamps that name none, by host; `EVERY` (`logs.reading`) for all others."""

    places: tuple[str, ...] = ()
    zones: Mapping[str, tzinfo] = field(default_factory=dict)
