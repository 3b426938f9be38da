"""Conditional requests: whether an object meets the conditions in the headers of a GET or HEAD.

Source: RFC 9110 §13. As Swift does it (swift.common.swob), ETags come before dates and what would be 304 before what
would be 412, If-Modified-Since counts also where If-None-Match is given, and a date that is none is no condition.
"""

import datetime
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from multidict import CIMultiDict

from storage_cluster.servers.http.messages import Reply

ETAG_IS_AT = "X-Backend-Etag-Is-At"
"""Names headers, first to last, whose value stands for the ETag in conditions: the first that the object has."""

_NOT_WITH_412 = ("Content-Type", "Content-Length", "Accept-Ranges", "Content-Range")


def check_conditions(asked: Mapping[str, str], found: CIMultiDict[str]) -> Reply | None:
    """The reply 304 or 412 if a condition of a GET or HEAD fails; None if all hold. `found`: the object's headers."""
    status = _status(asked, _etag(asked, found), _seconds(found.get("Last-Modified")))
    if status == 304:
        headers = CIMultiDict(found)
        headers["Content-Length"] = "0"
        return Reply(304, headers)
    if status == 412:
        return Reply(412, CIMultiDict({k: v for k, v in found.items() if k.title() not in _NOT_WITH_412}))
    return None


def absent(asked: Mapping[str, str]) -> Reply | None:
    """412 if the client requires that the object exists (`If-Match: *`); None: the answer is 404."""
    return Reply(412) if "*" in asked.get("If-Match", "") else None


def _status(asked: Mapping[str, str], etag: str, modified: float | None) -> int | None:
    since, until = _seconds(asked.get("If-Modified-Since")), _seconds(asked.get("If-Unmodified-Since"))
    if _names(asked.get("If-None-Match"), etag):
        return 304
    if "If-Match" in asked and not _names(asked["If-Match"], etag):
        return 412
    if modified is not None and since is not None and modified <= since:
        return 304
    if modified is not None and until is not None and modified > until:
        return 412
    return None


def _etag(asked: Mapping[str, str], found: Mapping[str, str]) -> str:
    for name in asked.get(ETAG_IS_AT, "").split(","):
        if name.strip() in found:
            return found[name.strip()].strip('"')
    return found.get("Etag", "").strip('"')


def _names(header: str | None, etag: str) -> bool:
    listed = [one.strip().removeprefix("W/").strip('"') for one in (header or "").split(",")]
    return "*" in listed or etag in listed


def _seconds(date: str | None) -> float | None:
    if not date:
        return None
    try:
        found = parsedate_to_datetime(date)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=datetime.UTC)).timestamp()
