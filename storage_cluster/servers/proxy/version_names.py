"""The reserved names of containers and objects that hold versions; no client can request them.

A container's versions are in a container of their own beside it, its name and those of the objects in it begun and
divided by NUL, which the proxy takes from nobody. The time is written as what is left of it until the last moment there
is, so that of an object's versions the newest is listed first.

    /account/\\0versions\\0container/\\0object\\08204818933.28994

Source: Swift, swift.common.middleware.versioned_writes.object_versioning (layout).
"""

import re

from storage_cluster.servers.http.messages import Authorize, Call

MARK = "\0"
ENABLED = "Versions-Enabled"
"""A container's sysmeta: True or False, as a client said last."""
ARCHIVE = "Versions-Container"
"""A container's sysmeta: there from when versions were first switched on; where they are."""
POINTER = "X-Object-Sysmeta-Versions-Id"
POINTER_ETAG = "X-Object-Sysmeta-Versions-Etag"
POINTER_BYTES = "X-Object-Sysmeta-Versions-Bytes"
"""The header that makes an object a pointer to a version: id, ETag and size."""
_PREFIX = f"{MARK}versions{MARK}"
_UPLOADS_PREFIX = f"{MARK}uploads{MARK}"
_ID = re.compile(r"\d{10}\.\d{5}")
_LAST_UNITS = 9_999_999_999_99999
_UNITS = 100_000


def archive_container(container: str) -> str:
    """The container that holds the versions."""
    return _PREFIX + container


def uploads_container(container: str) -> str:
    """The container that holds what is known of the multipart uploads under way, named as versions are."""
    return _UPLOADS_PREFIX + container


def archive_name(name: str, version_id: str) -> str:
    """The object that is a version of the one of that name."""
    return f"{MARK}{name}{MARK}{_invert(version_id)}"


def split_archive_name(archived: str) -> tuple[str, str]:
    """Name and version id."""
    name, _, inverted = archived.removeprefix(MARK).rpartition(MARK)
    return name, _invert(inverted)


def is_reserved(name: str) -> bool:
    """Whether a name is reserved for the servers."""
    return name.startswith(MARK)


def as_clients_know(name: str) -> str:
    """A container's or object's name without what marks it as a version or as the place for them."""
    for prefix in (_PREFIX, _UPLOADS_PREFIX):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return split_archive_name(name)[0] if is_reserved(name) else name


async def open_inside(outside: Authorize | None, call: Call, access_list: str | None) -> None:
    """Authorization that lets whoever may use a container use its versions too: no client can name them but through it.

    Raises: Refusal, for any other place, as `outside` does.
    """
    if not is_reserved(call.names[1]) and outside is not None:
        await outside(call, access_list)


def is_version_id(text: str) -> bool:
    """Whether a text is a valid version id."""
    return _ID.fullmatch(text) is not None


def _invert(timestamp: str) -> str:
    left = _LAST_UNITS - int(timestamp.replace(".", ""))
    return f"{left // _UNITS:010d}.{left % _UNITS:05d}"
