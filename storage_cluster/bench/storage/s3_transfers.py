"""Operations of several requests: a multipart upload, and a download in ranges.

    upload     create ──▶ parts, several at once ──▶ complete         or, if any of them failed: abort
    download   first range, which says how long the object is ──▶ the other ranges, several at once

How many go at once is `send`'s to say. A range is of the object as it was when the first one came (`If-Match`); one
that was replaced meanwhile fails with 412.

Limits: S3 has at most 10,000 parts; above that they are made larger.

Source: Amazon S3 API Reference: CreateMultipartUpload, UploadPart, CompleteMultipartUpload (which may answer 200 and
yet fail), AbortMultipartUpload, GetObject.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence

from storage_cluster.bench.engine import bodies
from storage_cluster.bench.engine.connection import Reply
from storage_cluster.bench.storage import s3_answers
from storage_cluster.bench.storage.protocol import Order, Request, Send, Step, StepError
from storage_cluster.bench.storage.s3_options import Payload
from storage_cluster.bench.storage.s3_requests import RequestBuilder, Target, crc32
from storage_cluster.s3.signatures import encode_query

PARTS_MAX = 10_000


class Upload:
    """A multipart upload."""

    def __init__(
        self, builder: RequestBuilder, order: Order, part_len: int, payload: Payload, keep_alive: bool
    ) -> None:
        self._builder = builder
        self._order = order
        self._part_len = max(part_len, -(-order.size_bytes // PARTS_MAX))
        self._has_checksums = payload is Payload.TRAILER
        self._keep_alive = keep_alive

    async def run(self, send: Send) -> int:
        """Upload it all; bytes sent. Raises: StepError, once what was uploaded is given up."""
        created = await send(Step(self._create, _fault_of_created, kept=True))
        upload_id = s3_answers.upload_id(created.body)
        try:
            replies = await _run_all(
                [send(self._part(upload_id, number)) for number in range(1, self._parts_count + 1)]
            )
            await send(self._completion(upload_id, [reply.etag for reply in replies]))
        except (StepError, asyncio.CancelledError):
            with contextlib.suppress(StepError):
                await send(Step(lambda: self._request("DELETE", [("uploadId", upload_id)]), _fault_of_abort))
            raise
        return self._order.size_bytes

    @property
    def _parts_count(self) -> int:
        return -(-self._order.size_bytes // self._part_len)

    def _create(self) -> Request:
        more = [("x-amz-checksum-algorithm", "CRC32")] if self._has_checksums else []
        target = Target("POST", self._order.container, self._order.object, "uploads=")
        return self._builder.build(target, keep_alive=self._keep_alive, more=more)

    def _part(self, upload_id: str, number: int) -> Step:
        def build() -> Request:
            body = self._body(number)
            query = encode_query([("partNumber", str(number)), ("uploadId", upload_id)])
            target = Target("PUT", self._order.container, self._order.object, query)
            return self._builder.build_upload(target, body, sum(map(len, body)), keep_alive=self._keep_alive)

        def fault(reply: Reply) -> str:
            if self._order.hash_check and not _fault(reply):
                return "" if reply.etag == bodies.digest(self._body(number)).hex() else "wrong_hash"
            return _fault(reply)

        return Step(build, fault)

    def _completion(self, upload_id: str, etags: Sequence[str]) -> Step:
        parts = "".join(self._part_entry(number, etag) for number, etag in enumerate(etags, 1))
        namespace = "http://s3.amazonaws.com/doc/2006-03-01/"
        document = f'<CompleteMultipartUpload xmlns="{namespace}">{parts}</CompleteMultipartUpload>'.encode()
        target = Target("POST", self._order.container, self._order.object, encode_query([("uploadId", upload_id)]))

        def build() -> Request:
            return self._builder.build_with_document(target, document, keep_alive=self._keep_alive)

        return Step(build, _fault_of_completed, kept=True)

    def _part_entry(self, number: int, etag: str) -> str:
        checksum = f"<ChecksumCRC32>{crc32(self._body(number))}</ChecksumCRC32>" if self._has_checksums else ""
        return f'<Part><PartNumber>{number}</PartNumber><ETag>"{etag}"</ETag>{checksum}</Part>'

    def _body(self, number: int) -> bodies.Body:
        start = (number - 1) * self._part_len
        size_bytes = min(self._part_len, self._order.size_bytes - start)
        return bodies.body(self._order.path, size_bytes, zeros=self._order.zeros, start=start)

    def _request(self, method: str, pairs: list[tuple[str, str]]) -> Request:
        target = Target(method, self._order.container, self._order.object, encode_query(pairs))
        return self._builder.build(target, keep_alive=self._keep_alive)


class Download:
    """An object in ranges."""

    def __init__(self, builder: RequestBuilder, order: Order, part_len: int, keep_alive: bool) -> None:
        self._builder = builder
        self._order = order
        self._part_len = part_len
        self._keep_alive = keep_alive

    async def run(self, send: Send) -> int:
        """Read it all; bytes received. Raises: StepError."""
        first = await send(self._range(0, self._part_len))
        if first.status == 416:  # there is no first byte: an empty object
            return (await send(self._range(0, 0))).body_len
        total = _total_len(first)
        starts = range(self._part_len, total, self._part_len)
        rest = await _run_all([send(self._range(start, self._part_len, first.etag)) for start in starts])
        return first.body_len + sum(reply.body_len for reply in rest)

    def _range(self, start: int, length: int, etag: str = "") -> Step:
        """A step that reads so many bytes, or, for 0, the whole object."""
        more = [("range", f"bytes={start}-{start + length - 1}")] if length else []
        more += [("if-match", f'"{etag}"')] if etag else []
        target = Target("GET", self._order.container, self._order.object)

        def build() -> Request:
            return self._builder.build(target, keep_alive=self._keep_alive, more=more)

        def fault(reply: Reply) -> str:
            if not start and length and not reply.error and reply.status == 416:
                return ""
            return _fault(reply) or ("" if self._is_right(reply, start) else "wrong_hash")

        return Step(build, fault, headers_kept=not etag, hashed=self._order.hash_check)

    def _is_right(self, reply: Reply, start: int) -> bool:
        if not self._order.hash_check:
            return True
        expected = bodies.body(self._order.path, reply.body_len, zeros=self._order.zeros, start=start)
        return reply.digest == bodies.digest(expected)


async def _run_all(steps: Sequence[Awaitable[Reply]]) -> list[Reply]:
    """Their replies in order; the first failure ends the others and is raised."""
    tasks = [asyncio.ensure_future(step) for step in steps]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _fault(reply: Reply) -> str:
    return reply.error or ("" if 200 <= reply.status < 300 else "status")


def _fault_of_created(reply: Reply) -> str:
    return _fault(reply) or ("" if s3_answers.upload_id(reply.body) else "bad_response")


def _fault_of_completed(reply: Reply) -> str:
    """S3 may answer 200 before it knows, and then an error, which SDKs take for a 500."""
    if not _fault(reply) and s3_answers.error_code(reply.body):
        reply.status = 500
    return _fault(reply)


def _fault_of_abort(reply: Reply) -> str:
    return "" if reply.status == 404 else _fault(reply)


def _total_len(reply: Reply) -> int:
    """Of the object of which this is a range; a server that sent it all ignored the range."""
    total = reply.headers.get("content-range", "").rpartition("/")[2]
    return int(total) if reply.status == 206 and total.isdecimal() else reply.body_len
