"""Expiring objects: when they expire, and the queue that the expirer reads.

An object with X-Delete-At is not shown from that second on, whether or not the expirer has come by. Object servers
enter it in a queue, an account of the cluster itself: `.expiring_objects`, a container for a day (spread over a
hundred names, so that not all objects of a day meet in one database), an object `<when>-<account>/<container>/<name>`.

Source: Swift, "Expiring Object Support"; swift.common.utils (`get_expirer_container`).
"""

import dataclasses
import time
from collections.abc import Mapping

from storage_cluster.servers.http.messages import Refusal

QUEUE_ACCOUNT = ".expiring_objects"
DAY_S = 86_400
_SPREAD = 100
_LAST_S = 9_999_999_999


@dataclasses.dataclass(frozen=True)
class QueueEntry:
    """An entry of the expiry queue."""

    container: str
    name: str

    @property
    def names(self) -> tuple[str, str, str]:
        """Account, container, object."""
        return QUEUE_ACCOUNT, self.container, self.name


def queue_entry(delete_at_s: int, names: tuple[str, ...], path_hash: str) -> QueueEntry:
    """The entry of an object: `names` are account, container and object, `path_hash` their MD5 in hex."""
    day = delete_at_s // DAY_S * DAY_S - int(path_hash, 16) % _SPREAD
    return QueueEntry(timestamp_text(day), f"{timestamp_text(delete_at_s)}-{'/'.join(names)}")


def delete_at(headers: Mapping[str, str]) -> int | None:
    """When an object with these headers expires, in seconds since 1970; None if never."""
    text = headers.get("X-Delete-At", "")
    return int(text) if text.isdigit() else None


def moment_meant(headers: Mapping[str, str]) -> int | None:
    """Of a DELETE that is meant for an object that expires at a certain moment: that moment. Raises: Refusal (400)."""
    text = headers.get("X-If-Delete-At")
    try:
        return None if text is None else int(text)
    except ValueError:
        raise Refusal(400, "Bad X-If-Delete-At header value") from None


def has_expired(headers: Mapping[str, str]) -> bool:
    """Whether the object has expired."""
    due_s = delete_at(headers)
    return due_s is not None and due_s <= time.time()


def timestamp_text(seconds: int) -> str:
    """Seconds as ten digits."""
    return f"{min(max(seconds, 0), _LAST_S):010d}"
