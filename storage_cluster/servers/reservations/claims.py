"""Reservations as values, as the book's API has them in JSON and its database keeps them.

Times are UTC, seconds since 1970; in JSON and XML as ISO 8601 (`2026-11-25T13:00:00Z`). Rates are MB/s (10^6 bytes).
"""

import dataclasses
import datetime
import math
from typing import Any, Self

from storage_cluster.servers.disks.accesses import Access

READ, WRITE = "read", "write"
DIRECTIONS = (READ, WRITE)
MB = 1_000_000
PARTS_SUFFIX = "+segments"
"""Of the container that holds the parts of a bucket's multipart uploads; they are in the bucket's space, too."""
BYTES_MAX = 1 << 53
RATE_MAX_MB_PER_S = 1e6
_TIME_MAX_S = 253_402_300_799.0  # the last second of the year 9999
_NAME_MAX_LEN = 1024


class ClaimError(ValueError):
    """What was sent describes no reservation; the message says why."""


@dataclasses.dataclass(frozen=True)
class SpaceReservation:
    """Room for a bucket's objects, for a time, with a throughput for accesses that have no reservation of their own."""

    bucket: str
    bytes: int
    start_s: float
    end_s: float
    base_mb_per_s: float = 0.0
    owner: str = ""
    id: str = ""

    def access(self, places: list[str]) -> Access | None:
        """What each request to the bucket may use; None if it has no base throughput."""
        if not self.base_mb_per_s:
            return None
        rate = round(self.base_mb_per_s * MB)
        return Access(self.id, int(self.end_s), dict.fromkeys(places, rate))

    def to_json(self) -> dict[str, Any]:
        """As the API has it."""
        return _with_iso_times(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, fields: Any, now_s: float) -> Self:
        """The reservation in a request or an answer. Raises: ClaimError."""
        values = _Fields(fields, ("bucket", "bytes", "start", "end", "base_mb_per_s", "owner", "id"))
        start_s, end_s = values.times(now_s)
        size = values.number("bytes", 1, BYTES_MAX)
        base = values.number("base_mb_per_s", 0.0, RATE_MAX_MB_PER_S, 0.0)
        bucket, owner, own_id = values.text("bucket"), values.text("owner", ""), values.text("id", "")
        return cls(bucket, int(size), start_s, end_s, base, owner, own_id)


@dataclasses.dataclass(frozen=True)
class AccessReservation:
    """A throughput for reading an object, or for writing to a bucket, for a time."""

    bucket: str
    direction: str
    mb_per_s: float
    start_s: float
    end_s: float
    key: str = ""
    owner: str = ""
    id: str = ""
    rates: dict[str, int] = dataclasses.field(default_factory=dict)
    """HOST/DEVICE to bytes per second that are reserved there."""
    is_spread: bool = False
    """Of a write: no device has it all, so parts are dealt out to the devices in turn."""

    @property
    def access(self) -> Access:
        """As it goes with requests to the storage servers."""
        return Access(self.id, math.ceil(self.end_s), self.rates)

    def to_json(self) -> dict[str, Any]:
        """As the API has it."""
        return _with_iso_times(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, fields: Any, now_s: float) -> Self:
        """The reservation in a request or an answer. Raises: ClaimError."""
        known = ("bucket", "direction", "mb_per_s", "start", "end", "key", "owner", "id", "rates", "is_spread")
        values = _Fields(fields, known)
        direction, key = values.text("direction"), values.text("key", "")
        if direction not in DIRECTIONS:
            raise ClaimError(f"direction is {direction!r}, neither read nor write")
        if (direction == READ) != bool(key):
            raise ClaimError("a read is of an object (key), a write of a whole bucket (no key)")
        start_s, end_s = values.times(now_s)
        rate = values.number("mb_per_s", 0.001, RATE_MAX_MB_PER_S)
        rates, is_spread = values.rates(), fields.get("is_spread") is True
        owner, own_id = values.text("owner", ""), values.text("id", "")
        return cls(values.text("bucket"), direction, rate, start_s, end_s, key, owner, own_id, rates, is_spread)


def parse_time(text: str) -> float:
    """A moment in ISO 8601, in UTC unless it says otherwise. Raises: ClaimError."""
    try:
        found = datetime.datetime.fromisoformat(text)
        if found.tzinfo is None:
            found = found.replace(tzinfo=datetime.UTC)
        return found.timestamp()
    except (ValueError, OverflowError):
        raise ClaimError(f"{text!r} is no time in ISO 8601, as 2026-11-25T13:00:00Z") from None


def format_time(seconds: float) -> str:
    """A moment in ISO 8601."""
    moment = datetime.datetime.fromtimestamp(min(max(seconds, 0.0), _TIME_MAX_S), datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Fields:
    """The fields of a JSON object, checked."""

    def __init__(self, fields: Any, known: tuple[str, ...]) -> None:
        if not isinstance(fields, dict):
            raise ClaimError("this is no JSON object")
        for name in fields:
            if name not in known:
                raise ClaimError(f"there is no field {name!r}; there are: {', '.join(known)}")
        self._fields = fields

    def text(self, name: str, default: str | None = None) -> str:
        value = self._fields.get(name, default)
        if not isinstance(value, str) or len(value) > _NAME_MAX_LEN:
            raise ClaimError(f"{name} is missing or no text")
        if default is None and not value:
            raise ClaimError(f"{name} is empty")
        return value

    def number(self, name: str, least: float, most: float, default: float | None = None) -> float:
        value = self._fields.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise ClaimError(f"{name} is {value!r}, no number from {least:g} to {most:g}")
        return value

    def times(self, now_s: float) -> tuple[float, float]:
        start_s = parse_time(self.text("start")) if self._fields.get("start") is not None else now_s
        end_s = parse_time(self.text("end"))
        if not start_s < end_s:
            raise ClaimError("the end is not after the start")
        return start_s, end_s

    def rates(self) -> dict[str, int]:
        value = self._fields.get("rates", {})
        if not isinstance(value, dict) or not all(isinstance(rate, int) for rate in value.values()):
            raise ClaimError("rates is no object of numbers")
        return value


def _with_iso_times(fields: dict[str, Any]) -> dict[str, Any]:
    fields["start"], fields["end"] = format_time(fields.pop("start_s")), format_time(fields.pop("end_s"))
    return fields
