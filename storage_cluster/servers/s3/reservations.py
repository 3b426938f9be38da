"""Reserved throughput and space, as clients of S3 use them: PapioS3's extension of four operations.

    PUT Bucket                  <SpaceReservation> in its document: room for the bucket's objects, for a time
    GET, PUT, Initiate          X-Papio-Access-ID: the reservation whose throughput the request uses; parts of an
    Multipart                   upload use the one that it was begun with

The gateway asks the book (`servers/reservations/`) what an id stands for, checks user, bucket, object, direction and
time, and sends with each request to a storage server what is reserved there (`disks/accesses.py`). At the end of a
reservation a transfer that is under way ends: an upload with `ReservationExpired`, and nothing of it is kept; a
download by closing the connection before its announced length. Requests without an id are not affected; in a bucket
whose space has a base throughput they use that.

A bucket with a space reservation takes what fits into it, from its start to its end. After the end it can be read and
emptied, not written. All other buckets together take what fits beside all that is reserved; what does not is answered
507 `InsufficientStorage`.

Limits: what a bucket holds is counted by its containers, and what is on its way by each gateway process alone; so
several workers may together exceed the space by what each has under way. What all others hold is counted by accounts,
which hear of it some seconds later (`account_report_delay_s`): meanwhile the gateway that wrote it counts it, for a
little longer than needed, so close to the limit a write can be refused too early. Copies announce no length, and are
counted when they are there. Swift's API is not limited. What an id stands for is remembered for `[reservations]
remember_s`: a reservation that is cancelled may be used for so long.

Source: 谷村, 柳田: 予約に基づくストレージQoS実現のためのS3 REST APIの拡張実装, §2.3, table 1.
"""

import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from xml.etree.ElementTree import Element

from storage_cluster.servers.http.messages import ACCESS, BrokenOff, Reply
from storage_cluster.servers.reservations.claims import (
    BYTES_MAX,
    RATE_MAX_MB_PER_S,
    READ,
    WRITE,
    ClaimError,
    SpaceReservation,
    format_time,
    parse_time,
)
from storage_cluster.servers.s3.buckets import Bucket
from storage_cluster.servers.s3.context import Operation
from storage_cluster.servers.s3.documents import child_text
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.request import Request

ACCESS_ID = "X-Papio-Access-ID"
ELEMENT = "SpaceReservation"
SETTING = "Space"
_DIRECTIONS = {("GET", ""): READ, ("PUT", ""): WRITE, ("PUT", "copy"): WRITE, ("POST", "uploads"): WRITE}
"""Operations on objects that may name a reservation, and what it must be for."""
_WRITES = (*(("PUT", about) for about in ("", "copy", "uploadId", "uploadId copy")), ("POST", ""), ("POST", "uploads"))
"""Operations that fill a bucket."""


@contextlib.asynccontextmanager
async def reserved_operation(op: Operation, about: str) -> AsyncIterator[None]:
    """Prepare an operation to use what is reserved for it, and hold its room while it lasts. Raises: S3Error."""
    asked, space = (op.request.call.method, about), reserved_space(op.bucket)
    room: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if space is not None and asked in _WRITES:
        room = _room(op, space, await op.gateway.buckets.used_bytes(op.request, op.bucket))
    elif asked in _WRITES:
        room = _unreserved_room(op, await op.gateway.book.unreserved_room(op.request))
    with room:
        if op.key and asked in _DIRECTIONS and ACCESS_ID in op.request.headers:
            await use(op, op.request.headers[ACCESS_ID], _DIRECTIONS[asked])
        elif op.key and space is not None and space.start_s <= time.time() < space.end_s:
            base = space.access(op.gateway.book.places)
            if base is not None:
                op.request.call.headers[ACCESS] = base.text()
        yield


async def use(op: Operation, access_id: str, direction: str) -> None:
    """Let an operation use a reservation. Raises: S3Error unless it is the user's, and is for this, now."""
    if op.request.requester is None:
        raise S3Error("AccessDenied")
    found = await op.gateway.book.access(op.request, access_id)
    if found.bucket != op.bucket.name or found.direction != direction or found.key not in ("", op.key):
        what = f"{found.direction} of {found.bucket}" + (f"/{found.key}" if found.key else "")
        raise S3Error("ReservationMismatch", f"The reservation is for a {what}.", {"AccessId": access_id})
    _check_time(found.start_s, found.end_s)
    op.reservation = found
    op.request.call.headers[ACCESS] = found.access.text()
    op.request.call.body.check = lambda: _check_time(found.start_s, found.end_s)


async def use_if_valid(op: Operation, access_id: str, direction: str) -> None:
    """Let an operation use a reservation, unless that has ended: what was uploaded in time can still be completed."""
    with contextlib.suppress(S3Error):
        await use(op, access_id, direction)
    op.request.call.body.check, op.reservation = None, None


@contextlib.contextmanager
def _room(op: Operation, space: SpaceReservation, used_bytes: int) -> Iterator[None]:
    """Hold room for what the request writes. Raises: S3Error (QuotaExceeded, ReservationExpired)."""
    _check_time(space.start_s, space.end_s)
    size, under_way_bytes = _announced_bytes(op.request), op.gateway.book.under_way_bytes
    held = used_bytes + under_way_bytes[op.bucket.name]
    if held + size > space.bytes:
        text = f"The bucket's reservation has {max(0, space.bytes - held)} of {space.bytes} bytes left."
        raise S3Error("QuotaExceeded", text)
    under_way_bytes[op.bucket.name] += size
    try:
        yield
    finally:
        under_way_bytes[op.bucket.name] -= size


def _unreserved_room(op: Operation, room_bytes: int | None) -> contextlib.AbstractContextManager[None]:
    """Hold room outside of reservations for what the request writes. Raises: S3Error (InsufficientStorage)."""
    size = _announced_bytes(op.request)
    if room_bytes is None:
        return contextlib.nullcontext()
    if size > room_bytes:
        text = f"Outside of reservations the store has {max(0, room_bytes)} bytes left."
        raise S3Error("InsufficientStorage", text)
    return op.gateway.book.count_unreserved(size)


def reserved_space(bucket: Bucket) -> SpaceReservation | None:
    """The reservation that a bucket was made with."""
    fields = bucket.json_setting(SETTING)
    return None if fields is None else SpaceReservation.from_json(fields, 0.0)


def space_in_document(root: Element, bucket: str, now_s: float) -> SpaceReservation | None:
    """The reservation that CreateBucket's document asks for; None if it asks for none. Raises: S3Error."""
    found = root.find(ELEMENT)
    if found is None:
        return None
    known = ("Size", "Start", "End", "BaseThroughput")
    for child in found:
        if child.tag not in known:
            raise S3Error("MalformedXML", f"{ELEMENT} has no element {child.tag}; there are: {', '.join(known)}.")
    try:
        start, end = child_text(found, "Start"), child_text(found, "End")
        start_s = parse_time(start) if start else now_s
        asked = SpaceReservation(
            bucket,
            int(_number(found, "Size", 1, BYTES_MAX)),
            start_s,
            parse_time(end or ""),
            _number(found, "BaseThroughput", 0, RATE_MAX_MB_PER_S, "0"),
        )
        if not asked.start_s < asked.end_s:
            raise ClaimError("the end is not after the start")
    except ClaimError as error:
        raise S3Error("InvalidArgument", f"{ELEMENT}: {error}.") from None
    return asked


def until_its_end(op: Operation, reply: Reply) -> Reply:
    """The reply, whose body breaks off when the operation's reservation ends."""
    if op.reservation is not None and not isinstance(reply.body, bytes):
        reply.body = _until(reply.body, op.reservation.end_s)
    return reply


async def _until(chunks: AsyncIterator[bytes], end_s: float) -> AsyncGenerator[bytes, None]:
    try:
        async for chunk in chunks:
            if time.time() >= end_s:
                raise BrokenOff
            yield chunk
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


def _number(found: Element, name: str, least: float, most: float, default: str = "") -> float:
    text = child_text(found, name) or default
    try:
        value = float(text) if text.isascii() else float("nan")
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise ClaimError(f"{name} is {text!r}, no number from {least:g} to {most:g}")
    return value


def _check_time(start_s: float, end_s: float) -> None:
    now_s = time.time()
    if now_s < start_s:
        raise S3Error("ReservationNotYetValid", f"The reservation begins at {format_time(start_s)}.")
    if now_s >= end_s:
        raise S3Error("ReservationExpired", f"The reservation ended at {format_time(end_s)}.")


def _announced_bytes(request: Request) -> int:
    """What a request says that it writes; 0 where it does not say."""
    text = request.headers.get("x-amz-decoded-content-length", "")
    if text.isascii() and text.isdigit():
        return int(text)
    return request.call.body.length or 0
