"""The body of an upload: unframed, and verified as it passes to the storage servers.

    client ── bytes, aws-chunked or not ──▶ VerifiedBody ── the object's bytes ──▶ store
                                                 └─ SHA-256, MD5 and checksum, compared at the end

What does not agree raises before the last piece is passed on, so the store's servers never have the whole of such an
upload, and keep nothing of it. A checksum that comes in the trailer is known only then; it goes to the store in a
trailer as well.

Source: Amazon S3 API reference, "Checking object integrity", "aws-chunked".
"""

import base64
import binascii
import dataclasses
import hashlib
from collections.abc import AsyncIterator, Callable

from multidict import CIMultiDict

from storage_cluster.s3.chunks import SIGNED_TRAILER, UNSIGNED_TRAILER, ChunkDecoder, ChunkError
from storage_cluster.servers.http.messages import Body, Refusal, Reply
from storage_cluster.servers.s3.authentication import Signed
from storage_cluster.servers.s3.checksums import (
    HEADER_PREFIX,
    Checksum,
    RunningChecksum,
    checksum_in_headers,
    wanted_algorithm,
)
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.request import Request

OBJECT_MAX_BYTES = 5 * 1024**3
_DIGEST_BYTES = 16


class VerifiedBody(Body):
    """A request's body as it goes to the store."""

    def __init__(self, source: Body, length: int | None, verifier: "_Verifier", decoder: ChunkDecoder | None) -> None:
        super().__init__(self._pieces(), length, source.proceed)
        self._source = source
        self._verifier = verifier
        self._decoder = decoder
        self.announces_trailers = verifier.algorithm is not None and verifier.given is None
        self.stored_as: Callable[[Checksum], dict[str, str]] = Checksum.metadata
        """How the store keeps the checksum: headers that follow from it."""

    @property
    def checksum(self) -> Checksum | None:
        """The checksum of what was read; None if none is wanted. Complete once the body is."""
        return self._verifier.checksum

    async def _pieces(self) -> AsyncIterator[bytes]:
        read, last = 0, b""
        async for chunk in self._source:
            for piece in self._decode(chunk):
                read += len(piece)
                if read > OBJECT_MAX_BYTES:
                    raise S3Error("EntityTooLarge", fields={"MaxSizeAllowed": OBJECT_MAX_BYTES})
                self._verifier.update(piece)
                if last:
                    yield last
                last = piece
        self._finish(read)
        if last:
            yield last

    def _finish(self, read: int) -> None:
        """Compare what was read with what was announced. Raises: S3Error."""
        if self.length not in (None, read) or (self._decoder is not None and not self._decoder.is_complete):
            raise S3Error("IncompleteBody")
        self._verifier.finish(self._decoder.trailers if self._decoder else {})
        if self.announces_trailers and self.checksum is not None:
            self.trailers.update(self.stored_as(self.checksum))

    def _decode(self, chunk: bytes) -> list[bytes]:
        if self._decoder is None:
            return [chunk]
        try:
            return self._decoder.feed(chunk)
        except ChunkError as error:
            raise S3Error("SignatureDoesNotMatch" if error.is_signature else "IncompleteBody", str(error)) from None


class _Verifier:
    """What is computed of a body, and what it must be."""

    def __init__(self, sha256: str | None, md5: bytes | None, given: Checksum | None, algorithm: str | None) -> None:
        self._sha256 = (hashlib.sha256(), sha256) if sha256 else None
        self._md5 = (hashlib.md5(usedforsecurity=False), md5) if md5 else None
        self.given = given
        self.algorithm = algorithm
        self._running = RunningChecksum(algorithm) if algorithm else None
        self.checksum = given

    def update(self, piece: bytes) -> None:
        if self._sha256:
            self._sha256[0].update(piece)
        if self._md5:
            self._md5[0].update(piece)
        if self._running:
            self._running.update(piece)

    def finish(self, trailers: dict[str, str]) -> None:
        """Compare. Raises: S3Error."""
        if self._sha256 and self._sha256[0].hexdigest() != self._sha256[1]:
            raise S3Error("XAmzContentSHA256Mismatch")
        if self._md5 and self._md5[0].digest() != self._md5[1]:
            raise S3Error("BadDigest")
        if self._running is None:
            return
        assert self.algorithm is not None
        given = self.given or checksum_in_headers({k: v for k, v in trailers.items() if k.startswith(HEADER_PREFIX)})
        if given is not None and (given.algorithm, given.text) != (self.algorithm, self._running.text):
            raise S3Error("BadDigest", f"The {given.algorithm} you specified did not match the calculated checksum.")
        self.checksum = Checksum(self.algorithm, self._running.text)


def upload_body(request: Request, signed: Signed, default_algorithm: str | None = None) -> VerifiedBody:
    """The body of a PUT of an object or a part. Raises: S3Error for headers that contradict each other."""
    call, decoder = request.call, None
    if signed.is_streamed:
        decoder = ChunkDecoder(
            signed.chunk_signer, has_trailer=signed.payload_hash in (SIGNED_TRAILER, UNSIGNED_TRAILER)
        )
        length: int | None = _decoded_length(request)
    elif not call.body.has_framing:
        raise S3Error("MissingContentLength")
    else:
        length = call.body.length
    if length is not None and length > OBJECT_MAX_BYTES:
        raise S3Error("EntityTooLarge", fields={"MaxSizeAllowed": OBJECT_MAX_BYTES})
    given = checksum_in_headers(call.headers)
    trailer = call.headers.get("x-amz-trailer", "").strip().lower()
    algorithm = given.algorithm if given else None
    if algorithm is None and trailer.startswith(HEADER_PREFIX):
        algorithm = wanted_algorithm({"trailer": trailer.removeprefix(HEADER_PREFIX)}, "trailer")
    algorithm = algorithm or wanted_algorithm(call.headers) or default_algorithm
    verifier = _Verifier(signed.body_sha256, content_md5(request), given, algorithm)
    return VerifiedBody(call.body, length, verifier, decoder)


async def read_verified(request: Request, signed: Signed, max_bytes: int, *, of_object: bool = False) -> bytes:
    """The whole of a small body, verified in the same way. Raises: S3Error.

    `of_object`: a checksum among the headers is that of an object, not of this body.
    """
    if request.call.body.length == 0:
        return b""
    if of_object:
        names = [name for name in request.headers if not name.lower().startswith(HEADER_PREFIX)]
        headers = CIMultiDict((name, request.headers[name]) for name in names)
        request = dataclasses.replace(request, call=dataclasses.replace(request.call, headers=headers))
    body = upload_body(request, signed)
    try:
        return await body.read(max_bytes)
    except S3Error:
        raise
    except Refusal as refusal:
        raise S3Error("EntityTooLarge" if refusal.status == 413 else "IncompleteBody") from None


def content_md5(request: Request) -> bytes | None:
    """The MD5 that the request gives of its body. Raises: S3Error (InvalidDigest)."""
    text = request.headers.get("Content-MD5")
    if text is None:
        return None
    try:
        digest = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        digest = b""
    if len(digest) != _DIGEST_BYTES:
        raise S3Error("InvalidDigest", fields={"Content-MD5": text})
    return digest


def stored_checksum_headers(body: VerifiedBody) -> dict[str, str]:
    """The checksum as metadata of the object, where the request gave it before its body."""
    return {} if body.announces_trailers or body.checksum is None else body.checksum.metadata()


def _decoded_length(request: Request) -> int:
    text = request.headers.get("x-amz-decoded-content-length", "")
    if not text.isascii() or not text.isdigit():
        raise S3Error("MissingContentLength")
    return int(text)


def copied_body(found: Reply, algorithm: str | None) -> VerifiedBody:
    """The bytes of the store's reply on their way to a copy, whose checksum is computed."""
    source = found.as_body()
    return VerifiedBody(source, int(found.headers["Content-Length"]), _Verifier(None, None, None, algorithm), None)
