"""Requests to an S3 store as they go to the kernel: target, signature, and the payload in the form asked for.

Invariant: every `x-amz-` header and `Host` is signed. A request's time is of the second in which it is built, so one
that waits long has to be built anew.
"""

import base64
import dataclasses
import functools
import hashlib
import re
import time
import zlib
from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from storage_cluster.bench.engine.bodies import Body
from storage_cluster.bench.storage.protocol import Request
from storage_cluster.bench.storage.s3_options import Payload, S3Options
from storage_cluster.s3 import chunks, signatures
from storage_cluster.s3.signatures import SignableRequest

SIGNED_CHUNK_BYTES = 64 * 1024
"""As in AWS's example and MinIO's clients."""
TRAILER_CHUNK_BYTES = 1 << 20
"""Source: botocore 1.44, `AwsChunkedWrapper`."""
CHECKSUM = "x-amz-checksum-crc32"
ACCESS_ID = "x-papio-access-id"
"""Whose reserved throughput a request uses. Source: document 002, table 1."""

_HOST_LABEL_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
Headers = Sequence[tuple[str, str]]


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """What a request is about."""

    method: str
    bucket: str
    key: str = ""
    query: str = ""  # encoded


class RequestBuilder:
    """Builds the requests to one store."""

    def __init__(self, options: S3Options) -> None:
        self._options = options
        parts = urlsplit(options.endpoint)
        self._host = parts.netloc
        self._base = parts.path.rstrip("/")
        port = f":{parts.port}" if parts.port else ""
        self._domain = f"{options.domain}{port}" if options.domain else self._host
        self._may_be_in_host = not options.path_style and not _is_address(options.domain or parts.hostname or "")

    def build(self, target: Target, *, keep_alive: bool, more: Headers = ()) -> Request:
        """A request without a body."""
        return self._sign(target, more, signatures.EMPTY_SHA256, [], 0, keep_alive)[0]

    def build_with_document(self, target: Target, document: bytes, *, keep_alive: bool) -> Request:
        """A request with a short body, which is signed."""
        hashed = hashlib.sha256(document).hexdigest()
        headers = [("content-type", "application/xml")]
        return self._sign(target, headers, hashed, [document], len(document), keep_alive)[0]

    def build_upload(self, target: Target, body: Body, size_bytes: int, *, keep_alive: bool) -> Request:
        """A request with an object, or a part of one, as its body."""
        match self._options.payload:
            case Payload.CHUNKED:
                return self._signed_chunks(target, body, size_bytes, keep_alive)
            case Payload.TRAILER:
                return self._with_trailer(target, body, size_bytes, keep_alive)
            case Payload.SIGNED:
                hashed = _sha256(body)
            case _:
                hashed = signatures.UNSIGNED_PAYLOAD
        return self._sign(target, (), hashed, body, size_bytes, keep_alive)[0]

    def _signed_chunks(self, target: Target, body: Body, size_bytes: int, keep_alive: bool) -> Request:
        length = chunks.framed_len(size_bytes, SIGNED_CHUNK_BYTES, signed=True)
        headers = [("content-encoding", "aws-chunked"), ("x-amz-decoded-content-length", str(size_bytes))]
        request, time_, seed = self._sign(target, headers, chunks.SIGNED, body, length, keep_alive)
        scope = signatures.Scope(time_[:8], self._options.region)
        signer = chunks.ChunkSigner(self._options.credentials.secret_key, scope, time_, seed)
        framed = list(chunks.frame(chunks.split_chunks(body, SIGNED_CHUNK_BYTES), signer))
        return Request(request.head, framed, size_bytes)

    def _with_trailer(self, target: Target, body: Body, size_bytes: int, keep_alive: bool) -> Request:
        trailers = [(CHECKSUM, crc32(body))]
        length = chunks.framed_len(size_bytes, TRAILER_CHUNK_BYTES, signed=False, trailers=trailers)
        headers = [
            ("content-encoding", "aws-chunked"),
            ("x-amz-decoded-content-length", str(size_bytes)),
            ("x-amz-trailer", CHECKSUM),
        ]
        request, _, _ = self._sign(target, headers, chunks.UNSIGNED_TRAILER, body, length, keep_alive)
        framed = list(chunks.frame(chunks.split_chunks(body, TRAILER_CHUNK_BYTES), None, trailers))
        return Request(request.head, framed, size_bytes)

    def _sign(
        self, target: Target, more: Headers, payload_hash: str, body: Body | list, length: int, keep_alive: bool
    ) -> tuple[Request, str, str]:
        """The request, and the time and the signature in its head."""
        options = self._options
        host, path = self._place(target)
        time_ = _amz_time(int(time.time()))
        if options.access_id and target.key and target.method in ("GET", "PUT", "POST"):
            more = (*more, (ACCESS_ID, options.access_id))
        signable = SignableRequest(target.method, path, target.query, [("host", host), *more])
        signed = signatures.signed_headers(signable, options.credentials, options.region, time_, payload_hash)
        lines = "".join([f"{name}: {value}\r\n" for name, value in (*more, *signed.items())])
        url = f"{path}?{target.query}" if target.query else path
        size = f"Content-Length: {length}\r\n" if target.method in ("PUT", "POST") else ""
        closing = "" if keep_alive else "Connection: close\r\n"
        head = (
            f"{target.method} {url} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: twintap-bench\r\n{closing}{lines}{size}\r\n"
        )
        return Request(head.encode(), body, length), time_, signed["Authorization"][-64:]

    def _place(self, target: Target) -> tuple[str, str]:
        """Host and path: as AWS's SDKs, the bucket is in the path where it is no host's name."""
        key = f"/{signatures.encode_path(target.key)}" if target.key else ""
        if self._may_be_in_host and _HOST_LABEL_BUCKET.fullmatch(target.bucket):
            return f"{target.bucket}.{self._domain}", f"{self._base}{key}" or "/"
        return self._host, f"{self._base}/{signatures.encode_path(target.bucket)}{key}"


def crc32(body: Body) -> str:
    """The CRC-32 of a body as S3 has it: big-endian, in Base64."""
    value = 0
    for part in body:
        value = zlib.crc32(part, value)
    return base64.b64encode(value.to_bytes(4, "big")).decode()


def _sha256(body: Body) -> str:
    made = hashlib.sha256()
    for part in body:
        made.update(part)
    return made.hexdigest()


@functools.lru_cache(4)
def _amz_time(second: int) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
