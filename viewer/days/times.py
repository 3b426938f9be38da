"""Times of day in words, UTC."""

from datetime import UTC, datetime

DAY_NS = 86_400 * 10**9


def moment(at_ns: int) -> str:
    """`2026-11-27 14:03`."""
    return f"{datetime.fromtimestamp(at_ns // 10**9, UTC):%Y-%m-%d %H:%M}"


def stretch_words(from_ns: int, to_ns: int) -> str:
    """`2026-11-27 14:00 to 15:00 UTC`; the day again where it is another."""
    end = moment(to_ns)
    return f"{moment(from_ns)} to {end[11:] if end[:10] == moment(from_ns)[:10] else end} UTC"
