"""Parses the Range header and builds replies with one or several byte ranges.

A header that cannot be understood counts as none; ranges that begin past the end are left out, and where none is left
the answer is 416. So that a short header cannot ask for an object many times over, too many ranges, too many that
overlap, or too many out of order are treated as unsatisfiable.

Source: RFC 9110 §14; the limits are Swift's (swift.common.swob: Range). As in Swift, If-Range is not looked at.
"""

import dataclasses
import itertools
import re
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from multidict import CIMultiDict

from storage_cluster.servers.http.messages import Reply, usual_text

RANGES_MAX = 50
OVERLAPS_MAX = 2
NOT_ASCENDING_MAX = 8
_SPEC = re.compile(r"(\d*)-(\d*)")

Source = Callable[[int, int], AsyncIterator[bytes]]
"""The bytes from start up to stop, as a stream."""


@dataclasses.dataclass(frozen=True, order=True)
class ByteRange:
    """Bytes start … stop - 1."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """Number of bytes."""
        return self.stop - self.start

    def content_range(self, whole_len: int) -> str:
        """The Content-Range header."""
        return f"bytes {self.start}-{self.stop - 1}/{whole_len}"


def parse_ranges(header: str | None, whole_len: int) -> list[ByteRange] | None:
    """The ranges that a header asks for, in its order; [] if none can be given; None for the whole object."""
    specs = _specs(header or "")
    if not specs:
        return None
    if whole_len == 0 and any(first is None and last for first, last in specs):
        return None
    found = [one for spec in specs if (one := _resolve(spec, whole_len)) is not None]
    return [] if _excessive(specs, found) else found


def single_range(header: str | None) -> tuple[int | None, int | None] | None:
    """First and last position of the only range in a header (first None: the last so many bytes); None: not one."""
    specs = _specs(header or "")
    return specs[0] if len(specs) == 1 else None


def reply_with_ranges(
    status: int, headers: CIMultiDict[str], whole_len: int, asked: str | None, source: Source
) -> Reply:
    """The reply to a GET: the whole (with `status`), a part (206), several (206, multipart) or 416.

    `headers` are those of the whole; Content-Length is set here.
    """
    ranges = parse_ranges(asked, whole_len)
    if ranges is None:
        headers["Content-Length"] = str(whole_len)
        return Reply(status, headers, source(0, whole_len))
    if not ranges:
        body = usual_text(416).encode()
        headers.update({"Content-Range": f"bytes */{whole_len}", "Content-Length": str(len(body))})
        return Reply(416, headers, body)
    if len(ranges) == 1:
        headers["Content-Range"] = ranges[0].content_range(whole_len)
        headers["Content-Length"] = str(ranges[0].length)
        return Reply(206, headers, source(ranges[0].start, ranges[0].stop))
    return _multipart(headers, whole_len, ranges, source)


def _multipart(headers: CIMultiDict[str], whole_len: int, ranges: Sequence[ByteRange], source: Source) -> Reply:
    boundary = secrets.token_hex(16)
    content_type = headers.get("Content-Type", "application/octet-stream")
    heads = [
        f"--{boundary}\r\nContent-Type: {content_type}\r\nContent-Range: {one.content_range(whole_len)}\r\n\r\n".encode(
            "utf-8", "surrogateescape"
        )
        for one in ranges
    ]
    end = f"--{boundary}--".encode()

    async def parts() -> AsyncIterator[bytes]:
        for head, one in zip(heads, ranges, strict=True):
            yield head
            async for chunk in source(one.start, one.stop):
                yield chunk
            yield b"\r\n"
        yield end

    length = sum(len(head) + one.length + 2 for head, one in zip(heads, ranges, strict=True)) + len(end)
    headers["Content-Type"] = f"multipart/byteranges;boundary={boundary}"
    headers["Content-Length"] = str(length)
    return Reply(206, headers, parts())


def _specs(header: str) -> list[tuple[int | None, int | None]]:
    """First and last position of each range; first None: the last so many bytes. [] if the header makes no sense."""
    unit, _, text = header.replace(" ", "").partition("=")
    if unit.lower() != "bytes":
        return []
    specs = []
    for part in text.split(","):
        matched = _SPEC.fullmatch(part)
        if matched is None or not any(matched.groups()):
            return []
        first, last = (int(digits) if digits else None for digits in matched.groups())
        if first is not None and last is not None and last < first:
            return []
        specs.append((first, last))
    return specs


def _resolve(spec: tuple[int | None, int | None], whole_len: int) -> ByteRange | None:
    first, last = spec
    if first is None:
        assert last is not None
        return ByteRange(max(0, whole_len - last), whole_len) if last else None
    if first >= whole_len:
        return None
    return ByteRange(first, whole_len if last is None else min(last + 1, whole_len))


def _excessive(specs: Sequence[object], found: Sequence[ByteRange]) -> bool:
    if len(specs) > RANGES_MAX:
        return True
    overlaps = sum(_reaches_into(one, other) for other, one in itertools.combinations(found, 2))
    not_ascending = sum(one.start < before.start for before, one in itertools.pairwise(found))
    return overlaps > OVERLAPS_MAX or not_ascending >= NOT_ASCENDING_MAX


def _reaches_into(one: ByteRange, other: ByteRange) -> bool:
    """Whether one begins or ends inside the other; the same range twice does not."""
    return other.start < one.start < other.stop or other.start < one.stop < other.stop


def is_single(headers: Mapping[str, str]) -> bool:
    """Whether a 206 holds one part, so that its body is those bytes and nothing else."""
    return "Content-Range" in headers
