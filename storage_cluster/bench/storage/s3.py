"""S3: Amazon's, and every store that speaks its API.

Which answers are good: any 2xx; for what makes a bucket, also that it is ours already (as COSBench has it); for what
cleans up, also 404. Which are worth another try, as in AWS's SDKs: no answer at all, 429, 500, 502, 503 (SlowDown,
ServiceUnavailable), 504, and RequestTimeout.

An object larger than `part_size_bytes` goes up as a multipart upload and comes down in ranges, several at once
(`storage_cluster.bench.storage.s3_transfers`).

Source: Amazon S3 API Reference, API version 2006-03-01; botocore 1.44, `retries/standard.py`, for what is tried again.
"""

from storage_cluster.bench.engine import bodies
from storage_cluster.bench.engine.connection import Connection, Endpoint, Reply, Timeouts
from storage_cluster.bench.model import Kind
from storage_cluster.bench.storage import s3_answers, s3_transfers
from storage_cluster.bench.storage.addresses import resolve
from storage_cluster.bench.storage.protocol import Order, Request, Send
from storage_cluster.bench.storage.s3_options import S3Options
from storage_cluster.bench.storage.s3_requests import RequestBuilder, Target
from storage_cluster.errors import NotRunningError
from storage_cluster.s3.signatures import encode_query

LISTING_LIMIT = 1000
_RETRIED = frozenset((0, 429, 500, 502, 503, 504))
_METHODS = {
    Kind.INIT: "PUT",
    Kind.READ: "GET",
    Kind.LIST: "GET",
    Kind.HEAD: "HEAD",
    Kind.DELETE: "DELETE",
    Kind.CLEANUP: "DELETE",
    Kind.DISPOSE: "DELETE",
}
_WRITES = (Kind.WRITE, Kind.PREPARE)


class S3:
    """An S3 store; see `Storage`."""

    def __init__(self, options: S3Options, timeouts: Timeouts = Timeouts()) -> None:  # noqa: B008  frozen
        """Raises: NotRunningError if the endpoint leads nowhere."""
        self._options = options
        self._timeouts = timeouts
        self._endpoint = resolve(options.endpoint)
        self._builder = RequestBuilder(options)

    @property
    def endpoint(self) -> Endpoint:
        """Where requests go."""
        return self._endpoint

    @property
    def connections_max(self) -> int:
        """Connections that an order may need at once."""
        return self._options.parallel_parts if self._options.part_size_bytes else 1

    def request(self, order: Order, *, keep_alive: bool = True) -> Request:
        """The bytes of the request."""
        if order.kind in _WRITES:
            target = Target("PUT", order.container, order.object)
            body = bodies.body(order.path, order.size_bytes, zeros=order.zeros)
            return self._builder.build_upload(target, body, order.size_bytes, keep_alive=keep_alive)
        query = f"list-type=2&max-keys={LISTING_LIMIT}" if order.kind is Kind.LIST else ""
        target = Target(_METHODS[order.kind], order.container, order.object, query)
        return self._builder.build(target, keep_alive=keep_alive)

    def fault(self, order: Order, reply: Reply) -> str:
        """Why an answer is not a good one; "" if it is."""
        if reply.error:
            return reply.error
        if not (200 <= reply.status < 300 or _is_as_wanted(order, reply)):
            return "status"
        if order.hash_check and not self._is_right(order, reply):
            return "wrong_hash"
        return ""

    def may_retry(self, order: Order, reply: Reply) -> bool:
        """Whether trying again may help."""
        return reply.status in _RETRIED or (
            reply.status == 400 and s3_answers.error_code(reply.body) == "RequestTimeout"
        )

    async def renew(self, stale: Request) -> None:
        """Nothing expires: each attempt is signed anew."""

    def has_parts(self, order: Order) -> bool:
        """Whether an order needs several requests."""
        part_len = self._options.part_size_bytes
        return bool(part_len) and (order.kind is Kind.READ or (order.kind in _WRITES and order.size_bytes > part_len))

    async def transfer(self, order: Order, send: Send, *, keep_alive: bool) -> int:
        """Do an order of several requests, some of them side by side; bytes moved. Raises: StepError."""
        part_len = self._options.part_size_bytes
        if order.kind is Kind.READ:
            return await s3_transfers.Download(self._builder, order, part_len, keep_alive).run(send)
        upload = s3_transfers.Upload(self._builder, order, part_len, self._options.payload, keep_alive)
        return await upload.run(send)

    async def present(self, container: str) -> dict[str, int]:
        """Name and size of each object in a bucket; empty if it is not there. Raises: NotRunningError."""
        connection = Connection(self._endpoint, self._timeouts)
        held: dict[str, int] = {}
        token = ""
        try:
            while True:
                page = await self._page(connection, container, token)
                held |= page.sizes
                token = page.next_token
                if not token:
                    return held
        finally:
            connection.close()

    async def _page(self, connection: Connection, bucket: str, token: str) -> s3_answers.Page:
        pairs = [("list-type", "2"), ("encoding-type", "url")]
        query = encode_query([*pairs, ("continuation-token", token)] if token else pairs)
        request = self._builder.build(Target("GET", bucket, query=query), keep_alive=True)
        reply = await connection.exchange(request.head, kept=True)
        if reply.status == 404 and s3_answers.error_code(reply.body) == "NoSuchBucket":
            return s3_answers.Page({}, "")
        page = s3_answers.listing(reply.body) if reply.status == 200 else None
        if page is None:
            why = reply.error or f"{reply.status} {s3_answers.error_code(reply.body)}".strip()
            raise NotRunningError(f"the bucket {bucket} cannot be listed ({why})", "check keys, region and endpoint")
        return page

    def _is_right(self, order: Order, reply: Reply) -> bool:
        """Whether what was read is what this generator writes, or what was written is what was sent."""
        if order.kind is Kind.READ:
            expected = bodies.body(order.path, reply.body_len, zeros=order.zeros)
            return reply.digest == bodies.digest(expected)
        if order.kind in _WRITES:
            sent = bodies.body(order.path, order.size_bytes, zeros=order.zeros)
            return reply.etag == bodies.digest(sent).hex()
        return True


def _is_as_wanted(order: Order, reply: Reply) -> bool:
    """Whether the store is as the order would have made it."""
    if order.kind in (Kind.CLEANUP, Kind.DISPOSE):
        return reply.status == 404
    is_ours = order.kind is Kind.INIT and reply.status == 409
    return is_ours and s3_answers.error_code(reply.body) == "BucketAlreadyOwnedByYou"
