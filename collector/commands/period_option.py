"""The length of periods, as an option gives it."""

import re

from collector.series.series import check_length
from tracer.errors import InputError

_LENGTH = re.compile(r"(\d{1,4}) ?(m|min|h|d)")
_UNITS_NS = {"m": 60 * 10**9, "min": 60 * 10**9, "h": 3_600 * 10**9, "d": 86_400 * 10**9}


def parse_length(text: str) -> int:
    """The length of a period from `10m`, `1h`, `1d`, in ns. Raises: InputError."""
    found = _LENGTH.fullmatch(text.strip())
    if found is None:
        raise InputError(f"{text!r} is no length of a period", "give one such as 10m, 1h or 1d")
    return check_length(int(found[1]) * _UNITS_NS[found[2]])
