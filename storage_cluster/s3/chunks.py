"""The framing of uploads whose payload is signed, or ends with a checksum, chunk by chunk (`aws-chunked`).

    SIZE[;chunk-signature=HEX]\\r\\n PAYLOAD \\r\\n   …   0[;chunk-signature=HEX]\\r\\n [NAME:VALUE\\r\\n …] \\r\\n

A chunk's signature covers the one before it, so chunks can be neither left out nor put in another order; the first
covers the request's own (the seed). In the form with a signed trailer, `x-amz-trailer-signature` covers the trailer.

Invariant: a decoder yields the payload in order and at once, before its signature is verified; so what it yields may be
kept for good only once `is_complete` is true.

Limits: a line of the framing is at most 16 KiB long, a payload's size as long as the request says.

Source: AWS, "Signature Calculations for the Authorization Header: Transferring Payload in Multiple Chunks" and
"… Including Trailing Headers" (Amazon S3 API Reference, API version 2006-03-01), whose examples are in the tests.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

from storage_cluster.s3.signatures import EMPTY_SHA256, Scope, is_same_signature, signature, signing_key

SIGNED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
SIGNED_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
"""Values of `x-amz-content-sha256` that announce each form."""
TRAILER_SIGNATURE = "x-amz-trailer-signature"
LINE_LEN_MAX = 16 * 1024

Bytes = bytes | bytearray | memoryview

_EXTENSION = ";chunk-signature="
_SIGNATURE_LEN = 64


class ChunkError(ValueError):
    """A payload that is not framed as announced. `is_signature`: the framing is good, a signature is not."""

    def __init__(self, problem: str, *, is_signature: bool = False) -> None:
        super().__init__(problem)
        self.is_signature = is_signature


class ChunkSigner:
    """The chain of signatures of one upload, for its client and for its server."""

    def __init__(self, secret_key: str, scope: Scope, time: str, seed: str) -> None:
        self._key = signing_key(secret_key, scope)
        self._context = f"{time}\n{scope.text}"
        self._last = seed

    def sign(self, chunk: Iterable[Bytes]) -> str:
        """The signature of the next chunk, given as its parts."""
        digest = hashlib.sha256()
        for part in chunk:
            digest.update(part)
        return self.sign_hash(digest.hexdigest())

    def sign_hash(self, payload_hash: str) -> str:
        """The same of a chunk whose SHA-256, in hex, is known."""
        text = f"AWS4-HMAC-SHA256-PAYLOAD\n{self._context}\n{self._last}\n{EMPTY_SHA256}\n{payload_hash}"
        self._last = signature(self._key, text)
        return self._last

    def sign_trailers(self, trailers: Sequence[tuple[str, str]]) -> str:
        """The signature of the trailer, after that of the last chunk."""
        lines = "".join(f"{name.lower()}:{value.strip()}\n" for name, value in trailers)
        hashed = hashlib.sha256(lines.encode()).hexdigest()
        return signature(self._key, f"AWS4-HMAC-SHA256-TRAILER\n{self._context}\n{self._last}\n{hashed}")


def split_chunks(parts: Iterable[memoryview], chunk_len: int) -> Iterator[list[memoryview]]:
    """A payload in chunks of that length, the last of which may be shorter; each as its parts, nothing copied."""
    chunk: list[memoryview] = []
    room = chunk_len
    for part in parts:
        while part:
            chunk.append(part[:room])
            room -= len(chunk[-1])
            part = part[len(chunk[-1]) :]  # noqa: PLW2901  what is left of it
            if not room:
                yield chunk
                chunk, room = [], chunk_len
    if chunk:
        yield chunk


def frame(
    chunks: Iterable[list[memoryview]], signer: ChunkSigner | None = None, trailers: Sequence[tuple[str, str]] = ()
) -> Iterator[bytes | memoryview]:
    """A payload as it is sent; without a signer in the unsigned form."""
    for chunk in chunks:
        yield _chunk_head(sum(map(len, chunk)), signer.sign(chunk) if signer else "")
        yield from chunk
        yield b"\r\n"
    tail = _chunk_head(0, signer.sign(()) if signer else "").decode()
    if signer and trailers:
        trailers = [*trailers, (TRAILER_SIGNATURE, signer.sign_trailers(trailers))]
    yield (tail + "".join(f"{name}:{value}\r\n" for name, value in trailers) + "\r\n").encode()


def framed_len(payload_len: int, chunk_len: int, *, signed: bool, trailers: Sequence[tuple[str, str]] = ()) -> int:
    """The length of what `frame` makes of a payload in chunks of that length: the request's Content-Length.

    Only the lengths of the trailers' values matter.
    """
    extension_len = len(_EXTENSION) + _SIGNATURE_LEN if signed else 0
    full, rest = divmod(payload_len, chunk_len)
    total = full * (len(f"{chunk_len:x}") + extension_len + 4 + chunk_len)
    total += len(f"{rest:x}") + extension_len + 4 + rest if rest else 0
    total += 1 + extension_len + 4
    total += sum(len(name) + len(value) + 3 for name, value in trailers)
    return total + (len(TRAILER_SIGNATURE) + _SIGNATURE_LEN + 3 if signed and trailers else 0)


class ChunkDecoder:
    """Reads a framed payload as it arrives; with a signer each signature is verified."""

    def __init__(self, signer: ChunkSigner | None = None, *, has_trailer: bool = False) -> None:
        self._signer = signer
        self._has_trailer = has_trailer
        self._buffer = bytearray()
        self._step = self._chunk_start
        self._left = 0  # of the chunk's payload
        self._hash = hashlib.sha256()
        self._signature = ""
        self.is_complete = False
        self.trailers: dict[str, str] = {}  # names in lower case; once complete

    def feed(self, data: Bytes) -> list[bytes]:
        """What of the payload these bytes hold. Raises: ChunkError."""
        self._buffer += data
        pieces: list[bytes] = []
        while self._step(pieces):
            pass
        return pieces

    # steps: True if there may be more to do with what is there

    def _chunk_start(self, pieces: list[bytes]) -> bool:
        line = self._line()
        if line is None:
            return False
        size, _, extension = line.partition(";")
        if not size or len(size) > 16 or not set(size) <= set("0123456789abcdefABCDEF"):
            raise ChunkError(f"{size[:20]!r} is no chunk's size")
        name, _, self._signature = extension.partition("=")
        if self._signer and name.strip() != "chunk-signature":
            raise ChunkError("a chunk has no signature", is_signature=True)
        self._left = int(size, 16)
        self._hash = hashlib.sha256()
        self._step = self._payload if self._left else self._last_chunk
        return True

    def _payload(self, pieces: list[bytes]) -> bool:
        piece = bytes(self._buffer[: self._left])
        if piece:
            del self._buffer[: len(piece)]
            self._left -= len(piece)
            if self._signer:
                self._hash.update(piece)
            pieces.append(piece)
        if not self._left:
            self._step = self._chunk_end
        return not self._left

    def _chunk_end(self, pieces: list[bytes]) -> bool:
        if len(self._buffer) < 2:
            return False
        if self._buffer[:2] != b"\r\n":
            raise ChunkError("a chunk is longer than its size says")
        del self._buffer[:2]
        self._verify_chunk()
        self._step = self._chunk_start
        return True

    def _last_chunk(self, pieces: list[bytes]) -> bool:
        self._verify_chunk()
        self._step = self._trailer
        return True

    def _trailer(self, pieces: list[bytes]) -> bool:
        line = self._line()
        if line is None:
            return False
        if not line:
            self._end()
            return True
        name, colon, value = line.partition(":")
        if not colon or not self._has_trailer:
            raise ChunkError("what follows the last chunk is no trailer" if self._has_trailer else "a trailer follows")
        self.trailers[name.strip().lower()] = value.strip()
        return True

    def _end(self) -> None:
        if self._signer and self._has_trailer:
            sent = self.trailers.pop(TRAILER_SIGNATURE, "")
            if not is_same_signature(self._signer.sign_trailers(list(self.trailers.items())), sent):
                raise ChunkError("the trailer's signature is wrong or missing", is_signature=True)
        self.is_complete = True
        self._step = self._after_end

    def _after_end(self, pieces: list[bytes]) -> bool:
        if self._buffer:
            raise ChunkError("bytes follow the end of the payload")
        return False

    def _verify_chunk(self) -> None:
        if self._signer and not is_same_signature(self._signer.sign_hash(self._hash.hexdigest()), self._signature):
            raise ChunkError("a chunk's signature is wrong", is_signature=True)

    def _line(self) -> str | None:
        """The next line without its end; None if it is not whole yet."""
        end = self._buffer.find(b"\r\n", 0, LINE_LEN_MAX + 2)
        if end < 0:
            if len(self._buffer) > LINE_LEN_MAX:
                raise ChunkError("a line is too long")
            return None
        line = bytes(self._buffer[:end]).decode("latin-1")
        del self._buffer[: end + 2]
        return line


def _chunk_head(size: int, signed: str) -> bytes:
    return (f"{size:x}{_EXTENSION}{signed}\r\n" if signed else f"{size:x}\r\n").encode()
