"""A store in memory that speaks just enough S3, in the test's own event loop; each signature is verified.

It misbehaves as `tests.helpers.tiny_store` does. Every answer has an id of its own.

    python -m tests.helpers.tiny_s3 ADDRESS PORT
"""

import asyncio
import base64
import dataclasses
import hashlib
import itertools
import sys
import zlib
from typing import NoReturn
from urllib.parse import parse_qsl, unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from storage_cluster.s3 import chunks, signatures
from tests.helpers.tiny_store import Behave, Seen, TinyStore, serving_store

ACCESS_KEY, SECRET_KEY = "test:tester", "testing"
PAGE_LEN = 3
"""Keys in a page of a listing, so that tests need few objects for several."""


class S3Error(Exception):
    """An error as S3 answers it."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


class TinyS3(TinyStore):
    """Buckets with objects, by `containers`; uploads that are not complete; every request that came."""

    def __init__(self, behave: Behave | None = None, *, domain: str = "") -> None:
        super().__init__(behave)
        self.domain = domain  # virtual hosts are below it
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.ids: list[str] = []  # of answers
        self._upload_numbers = itertools.count(1)

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://{self.domain or '127.0.0.1'}:{self.port}"

    def answer(self, seen: Seen) -> bytes:
        """What a store that behaves says."""
        self.ids.append(f"REQUEST{len(self.ids) + 1}")
        try:
            payload = verify(seen)
            bucket, key = self._place(seen)
            query = dict(parse_qsl(seen.path.partition("?")[2], keep_blank_values=True))
            return self._object(seen, bucket, key, query, payload) if key else self._bucket(seen, bucket, query)
        except S3Error as error:
            return self.error(error.status, error.code)

    def error(self, status: int, code: str) -> bytes:
        """An error's answer."""
        return self._say(status, f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode())

    def _place(self, seen: Seen) -> tuple[str, str]:
        path = unquote(seen.path.split("?")[0]).removeprefix("/")
        host = seen.headers["host"].rsplit(":", 1)[0]
        if self.domain and host.endswith(f".{self.domain}"):
            return host.removesuffix(f".{self.domain}"), path
        bucket, _, key = path.partition("/")
        return bucket, key

    def _bucket(self, seen: Seen, bucket: str, query: dict[str, str]) -> bytes:
        if seen.method == "PUT":
            if bucket in self.containers:
                raise S3Error(409, "BucketAlreadyOwnedByYou")
            self.containers[bucket] = {}
            return self._say(200)
        if bucket not in self.containers:
            raise S3Error(404, "NoSuchBucket")
        if seen.method == "DELETE":
            if self.containers[bucket]:
                raise S3Error(409, "BucketNotEmpty")
            del self.containers[bucket]
            return self._say(204)
        return self._list(bucket, query)

    def _list(self, bucket: str, query: dict[str, str]) -> bytes:
        assert query["list-type"] == "2"
        after = query.get("continuation-token", "")
        held = sorted((key, body) for key, body in self.containers[bucket].items() if key > after)
        entries = "".join(
            f"<Contents><Key>{escape(signatures.encode_path(key))}</Key><Size>{len(body)}</Size></Contents>"
            for key, body in held[:PAGE_LEN]
        )
        cut = len(held) > PAGE_LEN
        token = f"<NextContinuationToken>{escape(held[PAGE_LEN - 1][0])}</NextContinuationToken>" if cut else ""
        head = f"<EncodingType>url</EncodingType><IsTruncated>{str(cut).lower()}</IsTruncated>{token}"
        root = "ListBucketResult"
        return self._say(
            200, f'<{root} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{head}{entries}</{root}>'.encode()
        )

    def _object(self, seen: Seen, bucket: str, key: str, query: dict[str, str], payload: bytes) -> bytes:
        if bucket not in self.containers:
            raise S3Error(404, "NoSuchBucket")
        if "uploads" in query or "uploadId" in query:
            return self._multipart(seen, bucket, key, query, payload)
        held = self.containers[bucket]
        if seen.method == "PUT":
            held[key] = payload
            return self._say(200, b"", f"ETag: {_etag(payload)}")
        if seen.method == "DELETE":
            held.pop(key, None)
            return self._say(204)
        if key not in held:
            raise S3Error(404, "NoSuchKey")
        return self._get(seen, held[key])

    def _get(self, seen: Seen, body: bytes) -> bytes:
        etag = _etag(body)
        if seen.headers.get("if-match", etag) != etag:
            raise S3Error(412, "PreconditionFailed")
        if "range" not in seen.headers:
            return self._say(200, body, f"ETag: {etag}")
        start, end = map(int, seen.headers["range"].removeprefix("bytes=").split("-"))
        if start >= len(body):
            raise S3Error(416, "InvalidRange")
        part = body[start : end + 1]
        content_range = f"Content-Range: bytes {start}-{start + len(part) - 1}/{len(body)}"
        return self._say(206, part, f"ETag: {etag}", content_range)

    def _multipart(self, seen: Seen, bucket: str, key: str, query: dict[str, str], payload: bytes) -> bytes:
        if seen.method == "POST" and "uploads" in query:
            upload_id = f"upload/{next(self._upload_numbers)}"
            self.uploads[upload_id] = {}
            root = "InitiateMultipartUploadResult"
            return self._say(200, f"<{root}><UploadId>{upload_id}</UploadId></{root}>".encode())
        upload_id = query["uploadId"]
        if upload_id not in self.uploads:
            raise S3Error(404, "NoSuchUpload")
        if seen.method == "DELETE":
            del self.uploads[upload_id]
            return self._say(204)
        if seen.method == "PUT":
            self.uploads[upload_id][int(query["partNumber"])] = payload
            return self._say(200, b"", f"ETag: {_etag(payload)}")
        self.containers[bucket][key] = b"".join(self._parts(upload_id, payload))
        del self.uploads[upload_id]
        root = "CompleteMultipartUploadResult"
        return self._say(200, f"<{root}><Key>{escape(key)}</Key></{root}>".encode())

    def _parts(self, upload_id: str, document: bytes) -> list[bytes]:
        """The parts that a completion names. Raises: S3Error."""
        parts = []
        for part in ElementTree.fromstring(document):
            found = {child.tag.rpartition("}")[2]: child.text for child in part}
            body = self.uploads[upload_id].get(int(found["PartNumber"] or 0), b"")
            if found["ETag"] != _etag(body) or found.get("ChecksumCRC32", _crc32(body)) != _crc32(body):
                raise S3Error(400, "InvalidPart")
            parts.append(body)
        return parts

    def _say(self, status: int, body: bytes = b"", *headers: str) -> bytes:
        lines = [f"HTTP/1.1 {status} Said", f"x-amz-request-id: {self.ids[-1]}", *headers]
        if status != 204:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode() + body


def verify(seen: Seen) -> bytes:
    """The payload of a request whose signatures are right. Raises: S3Error."""
    path, _, query = seen.path.partition("?")
    request = signatures.SignableRequest(seen.method, path, query, list(seen.headers.items()))
    claim = signatures.claim_of_header(seen.headers.get("authorization", ""))
    must = {"host", *(name for name in seen.headers if name.startswith("x-amz-"))}
    if claim.access_key != ACCESS_KEY or not must <= set(claim.signed_names):
        raise S3Error(403, "AccessDenied")
    hashed, time = seen.headers["x-amz-content-sha256"], seen.headers["x-amz-date"]
    expected = signatures.expected_signature(request, claim, SECRET_KEY, hashed, time)
    if not signatures.is_same_signature(expected, claim.signature):
        raise S3Error(403, "SignatureDoesNotMatch")
    return _payload(seen, dataclasses.replace(claim, time=time), hashed)


def _payload(seen: Seen, claim: signatures.Claim, hashed: str) -> bytes:
    if not hashed.startswith("STREAMING-"):
        if hashed not in (signatures.UNSIGNED_PAYLOAD, hashlib.sha256(seen.body).hexdigest()):
            raise S3Error(400, "XAmzContentSHA256Mismatch")
        return seen.body
    signer = chunks.ChunkSigner(SECRET_KEY, claim.scope, claim.time, claim.signature)
    decoder = chunks.ChunkDecoder(None if "UNSIGNED" in hashed else signer, has_trailer=hashed.endswith("TRAILER"))
    try:
        payload = b"".join(decoder.feed(seen.body))
    except chunks.ChunkError:
        _refuse(403, "SignatureDoesNotMatch")
    if not decoder.is_complete or len(payload) != int(seen.headers["x-amz-decoded-content-length"]):
        _refuse(400, "IncompleteBody")
    name = seen.headers.get("x-amz-trailer", "")
    if name and decoder.trailers.get(name) != _crc32(payload):
        _refuse(400, "BadDigest")
    return payload


def _refuse(status: int, code: str) -> NoReturn:
    raise S3Error(status, code) from None


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


def _crc32(body: bytes) -> str:
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()


async def _serve(address: str, port: int) -> None:
    async with serving_store(TinyS3(), address, port):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))
