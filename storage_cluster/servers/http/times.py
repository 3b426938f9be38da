"""Swift's formats of timestamps and of transaction ids.

A timestamp is seconds since 1970 as text, ten digits, a point, five decimals ("1795161224.79526"), so that text order
is time order; the newest timestamp wins wherever two versions meet. A transaction id is `tx`, 21 random hex digits, a
dash and the time in ten hex digits.

Source: Swift, "Timestamps" (swift.common.utils.timestamp) and `catch_errors` middleware (generate_trans_id).
"""

import re
import time
import uuid
from email.utils import formatdate

_TRANSACTION_ID = re.compile(r"tx[0-9a-f]{21}-[0-9a-f]{10}[0-9A-Za-z-]{0,32}")
_UNITS_PER_SECOND = 100_000


class TimestampMaker:
    """Hands out timestamps that never repeat and never step back within a process."""

    def __init__(self) -> None:
        self._last = 0

    def now(self) -> str:
        """The present moment, later than any handed out before."""
        self._last = max(self._last + 1, time.time_ns() // (1_000_000_000 // _UNITS_PER_SECOND))
        return from_units(self._last)


def from_units(units: int) -> str:
    """A timestamp from a count of 10 µs since 1970."""
    return f"{units // _UNITS_PER_SECOND:010d}.{units % _UNITS_PER_SECOND:05d}"


def just_after(timestamp: str) -> str:
    """The earliest timestamp that is later."""
    return from_units(int(timestamp.replace(".", "")) + 1)


def timestamp_before(age_s: float) -> str:
    """The moment that was so many seconds ago."""
    return from_units(max(0, time.time_ns() - int(age_s * 1e9)) // (1_000_000_000 // _UNITS_PER_SECOND))


def new_transaction_id() -> str:
    """A fresh transaction id."""
    return f"tx{uuid.uuid4().hex[:21]}-{int(time.time()):010x}"


def is_transaction_id(text: str) -> bool:
    """Whether another server's transaction id may be taken over."""
    return _TRANSACTION_ID.fullmatch(text) is not None


def http_date(timestamp: str) -> str:
    """A timestamp as Last-Modified: whole seconds, rounded up, as Swift does."""
    return formatdate(-(-float(timestamp) // 1), usegmt=True)


def iso_date(timestamp: str) -> str:
    """A timestamp as listings show it: 2026-11-20T09:30:00.123450."""
    whole, _, decimals = timestamp.partition(".")
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(int(whole))) + f".{decimals:0<6}"
