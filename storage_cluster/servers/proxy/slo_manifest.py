"""The manifest of a static large object: what a client sends, what is stored, what is shown.

    sent    [{"path": "/container/name", "etag": …, "size_bytes": …, "range": "0-99"}, {"data": "<base64>"}, …]
    stored  [{"name": "/container/name", "bytes": …, "hash": …, "content_type": …, "last_modified": …, "range": …,
              "sub_slo": true}, {"data": …}, …]

All but `path` may be left out or null. The object's ETag is the MD5 of the segments' own (`etag`, `etag:range;`, the
MD5 of inline data), one after the other.

Source: Swift, "Static Large Objects"; wording of complaints as observed in Swift 2.30.
"""

import base64
import binascii
import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from storage_cluster.servers.http import ranges, values
from storage_cluster.servers.http.messages import PLAIN, Refusal
from storage_cluster.servers.http.values import is_true
from storage_cluster.servers.proxy.segments import Segment

MANIFEST_MAX_BYTES = 8_388_608
SEGMENTS_MAX = 1000
TOO_SMALL = "too small; each segment must be at least 1 byte."


@dataclasses.dataclass(frozen=True)
class Asked:
    """One entry of a manifest that a client sends: an object, or bytes in base64."""

    path: str = ""
    """As the client wrote it, with a slash before it or without."""
    etag: str | None = None
    size: int | None = None
    range: str | None = None
    data: str | None = None

    @property
    def full_path(self) -> str:
        """`/container/name`."""
        return "/" + self.path.lstrip("/")

    @property
    def names(self) -> tuple[str, str]:
        """The object's container and name."""
        container, _, name = self.full_path[1:].partition("/")
        return container, name


@dataclasses.dataclass(frozen=True)
class Entry:
    """One entry of a stored manifest, as JSON fields."""

    fields: Mapping[str, Any]

    @classmethod
    def from_head(cls, asked: Asked, headers: Mapping[str, str]) -> "Entry":
        """What the object's HEAD says of it; the range is resolved, and left out if it is all of the object."""
        size = int(headers["Content-Length"])
        modified = parsedate_to_datetime(headers["Last-Modified"]).timetuple()
        fields = {
            "name": asked.full_path,
            "bytes": size,
            "hash": headers["Etag"].strip('"'),
            "content_type": headers.get("Content-Type", ""),
            "last_modified": time.strftime("%Y-%m-%dT%H:%M:%S.000000", modified),
        }
        part = resolve_range(asked.range, size)
        if part is not None and part.length < size:
            fields["range"] = f"{part.start}-{part.stop - 1}"
        if is_true(headers.get("X-Static-Large-Object")):
            fields["sub_slo"] = True
        return cls(fields)

    @property
    def segment(self) -> Segment:
        """The bytes it stands for."""
        if "data" in self.fields:
            data = base64.b64decode(self.fields["data"])
            return Segment(length=len(data), data=data)
        _, container, name = self.fields["name"].split("/", 2)
        part = resolve_range(self.fields.get("range"), self.fields["bytes"])
        return Segment(
            length=part.length if part else self.fields["bytes"],
            container=container,
            name=name,
            etag=self.fields["hash"],
            first=part.start if part else 0,
            whole=part is None,
            nested=bool(self.fields.get("sub_slo")),
        )

    @property
    def etag_part(self) -> str:
        """What goes into the large object's ETag."""
        if "data" in self.fields:
            return values.etag_of(base64.b64decode(self.fields["data"]))
        return f"{self.fields['hash']}:{self.fields['range']};" if "range" in self.fields else self.fields["hash"]

    @property
    def as_sent(self) -> dict[str, Any]:
        """The entry in the form in which a client would send it."""
        if "data" in self.fields:
            return {"data": self.fields["data"]}
        sent = {"path": self.fields["name"], "etag": self.fields["hash"], "size_bytes": self.fields["bytes"]}
        return sent | ({"range": self.fields["range"]} if "range" in self.fields else {})


def parse_sent(text: bytes, target: str) -> list[Asked]:
    """A client's manifest for the object `/container/name`. Raises: Refusal (400, 413)."""
    try:
        document = json.loads(text)
    except ValueError:
        raise Refusal(400, "Manifest must be valid JSON.\n") from None
    if not isinstance(document, list):
        raise Refusal(400, "Manifest must be a list.\n")
    last = len(document) - 1
    troubles = [_trouble(item, target, last=at == last) for at, item in enumerate(document)]
    complaints = [f"Index {at}: {trouble}" for at, trouble in enumerate(troubles) if trouble]
    if document and all(isinstance(item, dict) and "data" in item for item in document):
        complaints.append("Inline data segments require at least one object-backed segment.")
    if complaints:
        raise Refusal(400, "".join(f"{complaint}\n" for complaint in complaints), PLAIN)
    entries = [_parse_asked(item) for item in document]
    if sum(entry.data is None for entry in entries) > SEGMENTS_MAX:
        raise Refusal(413, f"Number of object-backed segments must be <= {SEGMENTS_MAX}")
    return entries


def parse_stored(text: bytes) -> list[Entry]:
    """A stored manifest. Raises: Refusal (500) if it is none."""
    try:
        return [Entry(fields) for fields in json.loads(text)]
    except (ValueError, TypeError):
        raise Refusal(500, "Unable to load SLO manifest") from None


def stored_text(entries: Sequence[Entry]) -> bytes:
    """A manifest to store."""
    return json.dumps([entry.fields for entry in entries]).encode()


def sent_text(entries: Sequence[Entry]) -> bytes:
    """A manifest as a client would send it again."""
    return json.dumps([entry.as_sent for entry in entries], sort_keys=True).encode()


def etag_of(entries: Sequence[Entry]) -> str:
    """The large object's ETag, without quotes."""
    return values.etag_of("".join(entry.etag_part for entry in entries).encode())


def resolve_range(text: str | None, size: int) -> ranges.ByteRange | None:
    """A segment's range within an object of this size; None for all of it, or if there is none."""
    found = ranges.parse_ranges(f"bytes={text}", size) if text else None
    return found[0] if found else None


def _trouble(item: Any, target: str, *, last: bool) -> str | None:
    """What is wrong with one entry of a client's manifest; only the last may stand for no bytes."""
    if not isinstance(item, dict):
        return "not a JSON object"
    if "data" in item:
        return _extra_keys(item, {"data"}) or _trouble_of_data(item["data"])
    if "path" not in item:
        return 'expected keys to include one of "path" or "data"'
    return (
        _extra_keys(item, {"path", "etag", "size_bytes", "range"})
        or _trouble_of_path(item["path"], item.get("etag"))
        or _trouble_of_size(item.get("size_bytes"), last=last)
        or ("manifest must not include itself as a segment" if _parse_asked(item).full_path == target else None)
        or _trouble_of_range(item.get("range"), _size(item.get("size_bytes")))
    )


def _trouble_of_path(path: Any, etag: Any) -> str | None:
    if not isinstance(path, str):
        return '"path" must be a string'
    if not isinstance(etag, str | None):
        return '"etag" must be a string or null (if provided)'
    if "/" not in path.strip("/"):
        return "path does not refer to an object. Path must be of the form /container/object."
    return None


def _trouble_of_size(given: Any, *, last: bool) -> str | None:
    try:
        size = _size(given)
    except (TypeError, ValueError):
        return "invalid size_bytes"
    return TOO_SMALL if size is not None and size < 1 and not last else None


def _trouble_of_range(text: Any, size: int | None) -> str | None:
    if not text:
        return None
    if not isinstance(text, str) or ranges.parse_ranges(f"bytes={text}", 1) is None:
        return "invalid range"
    if "," in text:
        return "multiple ranges (only one allowed)"
    if size is not None and ranges.parse_ranges(f"bytes={text}", size) == []:
        return "unsatisfiable range"
    return None


def _trouble_of_data(data: Any) -> str | None:
    try:
        decoded = base64.b64decode(data, validate=True)
    except (ValueError, TypeError, binascii.Error):
        return "data must be valid base64"
    return None if decoded else TOO_SMALL


def _extra_keys(item: Mapping[str, Any], known: set[str]) -> str | None:
    extra = sorted(set(item) - known)
    return "extraneous keys " + ", ".join(f'"{key}"' for key in extra) if extra else None


def _size(value: Any) -> int | None:
    """The size an entry gives, None if it gives none. Raises: TypeError, ValueError."""
    return None if value is None else int(value)


def _parse_asked(item: Mapping[str, Any]) -> Asked:
    if "data" in item:
        return Asked(data=item["data"])
    return Asked(item["path"], item.get("etag"), _size(item.get("size_bytes")), item.get("range"))
