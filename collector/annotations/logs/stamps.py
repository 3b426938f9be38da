"""The times of lines: ns since the epoch, with by how much a stamp is off because of how it is written.

A stamp stands for a stretch as long as its last digit: "06:43:49" for a second. Its time is the middle of that stretch,
its uncertainty half of it. What a stamp leaves out is assumed, and noted: without a zone it is in the zone of the
option, or UTC; without a year it is of the year that brings it nearest to the captures.
"""

import calendar
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct, field

from tracer.errors import InputError

NS_PER_S = 10**9
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
NO_ZONE = "log_zone_assumed"
NO_YEAR = "log_year_assumed"
_ZULU = frozenset({"Z", "UTC", "GMT", "Etc/UTC"})


class Stamp(Struct, frozen=True):
    """A time by the clock of who wrote it."""

    at_ns: int
    uncertainty_ns: int


class Calendar(Struct):
    """Converts what lines say to stamps; it counts what it had to assume.

    Arguments: `zone` of stamps that name none; None for UTC, then counted as assumed. `near_ns`, when the captures
    were made.
    """

    zone: tzinfo | None
    near_ns: int
    assumed: dict[str, int] = field(default_factory=dict)

    def stamp(self, day: tuple[int, int, int], clock: str, zone: str | None = None) -> Stamp | None:
        """The stamp of a day (year 0: not given) and a time, `06:43:49.123`, in a zone: `+0000`, `UTC`; None if there
        is no such time."""
        whole, _, fraction = clock.replace(",", ".").partition(".")
        try:
            hour, minute, second = map(int, whole.split(":"))
            year = day[0] or self._year(day, (hour, minute, second))
            moment = datetime(year, day[1], day[2], hour, minute, min(second, 59), tzinfo=UTC)
            seconds = calendar.timegm(moment.timetuple()) + max(0, second - 59) - self._offset_s(moment, zone)
        except (ValueError, OverflowError):
            return None
        return of_parts(seconds, fraction)

    def _offset_s(self, moment: datetime, zone: str | None) -> int:
        known = self.zone if zone is None else (_fixed_zone(zone) or self.zone)
        if known is None:
            self.note(NO_ZONE)
            return 0
        offset = known.utcoffset(moment.replace(tzinfo=None)) or timedelta(0)
        return offset.days * 86_400 + offset.seconds

    def _year(self, day: tuple[int, int, int], time: tuple[int, int, int]) -> int:
        self.note(NO_YEAR)
        near = datetime.fromtimestamp(self.near_ns // NS_PER_S, UTC).year
        found = [
            (abs(calendar.timegm((year, day[1], day[2], *time)) * NS_PER_S - self.near_ns), year)
            for year in (near - 1, near, near + 1)
            if day[2] <= calendar.monthrange(year, day[1])[1]
        ]
        return min(found)[1]

    def note(self, what: str) -> None:
        """Count something that was assumed."""
        self.assumed[what] = self.assumed.get(what, 0) + 1


def of_parts(seconds: int, fraction: str = "") -> Stamp:
    """The stamp of whole seconds since the epoch and the digits behind the point."""
    digits = fraction[:9]
    step = 10 ** (9 - len(digits))
    return Stamp(seconds * NS_PER_S + int(digits or "0") * step + step // 2, step // 2)


def of_number(text: str) -> Stamp | None:
    """The stamp of a number since the epoch: seconds, ms, µs or ns by its size; None if it is no time of this age."""
    whole, _, fraction = text.partition(".")
    if not (whole.isdecimal() and (not fraction or fraction.isdecimal())):
        return None
    for digits in (0, 3, 6, 9):
        if 10 ** (8 + digits) <= int(whole) < 10 ** (10 + digits):
            cut = len(whole) - digits
            return of_parts(int(whole[:cut]), whole[cut:] + fraction)
    return None


def parse_zone(text: str) -> tzinfo:
    """The zone that an option names: `Europe/Berlin`, `+02:00`, `UTC`. Raises: `InputError`."""
    fixed = _fixed_zone(text)
    if fixed is not None:
        return fixed
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InputError(f"--log-zone {text}: no such zone", "give one such as Europe/Berlin, +02:00 or UTC") from None


def _fixed_zone(text: str) -> tzinfo | None:
    if text in _ZULU:
        return UTC
    digits = text[1:].replace(":", "")
    if text[:1] not in ("+", "-") or not digits.isdecimal() or len(digits) not in (2, 4):
        return None
    minutes = int(digits[:2]) * 60 + int(digits[2:] or "0")
    if minutes >= 24 * 60:
        return None
    return timezone(timedelta(minutes=minutes if text[0] == "+" else -minutes))


def month(name: str) -> int:
    """The number of a month, 1 to 12; 0 if it is none."""
    return MONTHS.index(name) + 1 if name in MONTHS else 0
