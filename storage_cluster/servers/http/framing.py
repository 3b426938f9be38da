"""Parses HTTP/1.1 messages from a stream of bytes, in pieces of any size: heads, bodies and their ends.

    bytes ──▶ RequestReader | ResponseReader ──▶ RequestHead | ResponseHead, then bytes…, then END, and the next message

No socket, no clock: `feed` takes what has arrived and yields what it means. Whatever can be read in two ways is refused
(RFC 9112 §6.3, §11.2): length and chunks together, two lengths, a length that is no plain number, another transfer
coding, folded lines, bare CR or LF, a space before the colon. Methods and targets are any visible bytes: storage
servers have methods of their own (REPLICATE), and Swift's clients send names in raw UTF-8.

Limits, as Swift (eventlet.wsgi) sets them: 8 KiB for the request line (414) and for each header, 64 KiB for them all
(400), 200 headers (431).

Source: RFC 9112; Swift, swift.common.wsgi (MAX_HEADER_SIZE), swift.common.bufferedhttp (_MAXHEADERS), eventlet.wsgi
(MAX_TOTAL_HEADER_SIZE).
"""

import abc
import dataclasses
import enum
import re
from collections.abc import Iterator

from multidict import CIMultiDict

LINE_MAX_BYTES = 8_192
HEADERS_MAX_BYTES = 65_536
HEADERS_MAX_COUNT = 200
"""Swift counts the empty line behind them as well, up to 1.6 × (90 + 36)."""
_CHUNK_LINE_MAX_BYTES = 1_024
_BODILESS_STATUSES = (204, 304)

# Possessive, so that a hostile head costs time in proportion to its length.
_NAME = r"[!#$%&'*+\-.^_`|~0-9A-Za-z\x80-\U0010ffff]++"
_HEADERS = re.compile(rf"(?:{_NAME}:[^\r\n\0]*+\r\n)*+")
_HEADER = re.compile(rf"({_NAME}):[ \t]*+([^\r\n\0]*+)\r\n")
_REQUEST_LINE = re.compile(r"([!-~]++) ([^\0-\x20\x7f]++) HTTP/1\.([01])")
_STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([^\r\n\0]*+))?")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*+(?:;[^\r\n]*+)?")
_LONE_NEWLINE = re.compile(rb"(?<!\r)\n")


class FramingError(Exception):
    """The bytes are no HTTP message, or an ambiguous one; nothing after them can be read."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text}")
        self.status = status
        self.text = text


class End(enum.Enum):
    """The end of a message."""

    END = "end"


END = End.END


@dataclasses.dataclass(slots=True)
class RequestHead:
    """A request up to its body."""

    method: str
    target: str
    headers: CIMultiDict[str]
    keeps_alive: bool
    minor_version: int
    length: int | None = 0  # None: in chunks

    @property
    def has_framing(self) -> bool:
        """Whether the request's headers determine the end of its body."""
        return self.length is None or "Content-Length" in self.headers


@dataclasses.dataclass(slots=True)
class ResponseHead:
    """A response up to its body."""

    status: int
    headers: CIMultiDict[str]
    keeps_alive: bool
    length: int | None = 0  # None: in chunks, or up to the end of the connection


Event = RequestHead | ResponseHead | bytes | End


class _State(enum.Enum):
    HEAD = enum.auto()
    FIXED = enum.auto()  # a body of known length
    UNTIL_CLOSE = enum.auto()
    CHUNK_SIZE = enum.auto()
    CHUNK = enum.auto()
    CHUNK_END = enum.auto()
    TRAILERS = enum.auto()


class _Reader(abc.ABC):
    """The state machine that requests and responses share."""

    def __init__(self) -> None:
        self._state = _State.HEAD
        self._buffer = b""  # of a line or head that is not complete
        self._left_bytes = 0  # of the body or the chunk
        self.trailers: CIMultiDict[str] = CIMultiDict()
        """What stands behind the chunks of the newest message; whole at its END."""
        self._trailers_len = 0

    @property
    def amid_message(self) -> bool:
        """Whether a message has begun and not ended."""
        return self._state is not _State.HEAD or bool(self._buffer)

    def feed(self, data: bytes) -> Iterator[Event]:
        """The parts of messages that these bytes complete. Raises: FramingError; then feed no more."""
        seen = len(self._buffer)  # looked through already: a head that drips in must not cost its length each time
        if seen:
            data = self._buffer + data
            self._buffer = b""
        at = 0
        while at < len(data):
            if self._state is _State.HEAD:
                at = self._skip_empty_lines(data, at)
                end = data.find(b"\r\n\r\n", max(at, seen - 3))
                if end < 0:
                    self._buffer = _check_partial_head(data[at:], max(0, seen - at))
                    return
                head = self._parse(data[at : end + 2])
                at = end + 4
                yield head
                if self._state is _State.HEAD:
                    yield END
            elif self._state in (_State.FIXED, _State.CHUNK):
                piece = data[at : at + self._left_bytes] if at or self._left_bytes < len(data) else data
                at += len(piece)
                self._left_bytes -= len(piece)
                yield piece
                if not self._left_bytes and self._state is _State.FIXED:
                    self._state = _State.HEAD
                    yield END
                elif not self._left_bytes:
                    self._state = _State.CHUNK_END
            elif self._state is _State.UNTIL_CLOSE:
                yield data[at:]
                return
            else:
                end = data.find(b"\r\n", at)
                if end < 0:
                    self._buffer = _check_partial_line(data[at:])
                    return
                if self._take_line(data[at:end]):
                    yield END
                at = end + 2

    def end_of_stream(self) -> bool:
        """Whether the connection's end is the message's regular end."""
        if self._state is _State.UNTIL_CLOSE:
            self._state = _State.HEAD
            return True
        return False

    @abc.abstractmethod
    def _parse(self, block: bytes) -> RequestHead | ResponseHead:
        """Parse a head, and determine what follows it."""

    def _skip_empty_lines(self, data: bytes, at: int) -> int:
        while data.startswith(b"\r\n", at):  # RFC 9112 §2.2: before a request, from clients that count badly
            at += 2
        return at

    def _take_line(self, line: bytes) -> bool:
        """A line between chunks; True at the end of the message."""
        if self._state is _State.CHUNK_END:
            if line:
                raise FramingError(400, "A chunk is longer than it said")
            self._state = _State.CHUNK_SIZE
        elif self._state is _State.CHUNK_SIZE:
            size = _CHUNK_SIZE.fullmatch(line)
            if size is None or len(line) > _CHUNK_LINE_MAX_BYTES:
                raise FramingError(400, "Bad chunk size")
            self._left_bytes = int(size[1], 16)
            self._state = _State.CHUNK if self._left_bytes else _State.TRAILERS
        elif not line:
            self._state = _State.HEAD
            return True
        else:
            self._take_trailer(line)
        return False

    def _take_trailer(self, line: bytes) -> None:
        self._trailers_len += len(line)
        found = _HEADER.fullmatch(line.decode("utf-8", "surrogateescape") + "\r\n")
        if found is None or self._trailers_len > LINE_MAX_BYTES:
            raise FramingError(400, "Bad trailer")
        self.trailers.add(found[1], found[2].rstrip(" \t"))

    def _body_follows(self, length: int | None) -> None:
        self.trailers, self._trailers_len = CIMultiDict(), 0
        if length is None:
            self._state = _State.CHUNK_SIZE
        elif length:
            self._state = _State.FIXED
            self._left_bytes = length


class RequestReader(_Reader):
    """Requests, as a server reads them."""

    def _parse(self, block: bytes) -> RequestHead:
        line, headers = _lines(block)
        parts = _REQUEST_LINE.fullmatch(line)
        if parts is None:
            raise FramingError(400, "Bad request line")
        if len(headers) > HEADERS_MAX_COUNT:
            raise FramingError(431, "Too many headers")
        minor_version = int(parts[3])
        keeps_alive = _keeps_alive(headers, minor_version)
        length = _given_length(headers)
        if length is None and "Transfer-Encoding" not in headers:
            length = 0
        elif length is None and minor_version == 0:
            raise FramingError(400, "HTTP/1.0 has no chunks")
        self._body_follows(length)
        return RequestHead(parts[1], parts[2], headers, keeps_alive, minor_version, length)


class ResponseReader(_Reader):
    """Responses, as a client reads them."""

    def __init__(self, *, to_head: bool = False) -> None:
        super().__init__()
        self.to_head = to_head
        """Whether the next response answers a HEAD, and so has no body."""

    def _parse(self, block: bytes) -> ResponseHead:
        line, headers = _lines(block)
        parts = _STATUS_LINE.fullmatch(line)
        if parts is None:
            raise FramingError(400, "Bad status line")
        status = int(parts[2])
        keeps_alive = _keeps_alive(headers, int(parts[1]))
        if self.to_head or status < 200 or status in _BODILESS_STATUSES:
            return ResponseHead(status, headers, keeps_alive)
        length = _given_length(headers)
        if length is None and "Transfer-Encoding" not in headers:
            self._state = _State.UNTIL_CLOSE
            return ResponseHead(status, headers, False, None)
        self._body_follows(length)
        return ResponseHead(status, headers, keeps_alive, length)


def _lines(block: bytes) -> tuple[str, CIMultiDict[str]]:
    """The first line of a head, and its headers. `block` ends with the last header's CRLF."""
    text = block.decode("utf-8", "surrogateescape")
    line, _, rest = text.partition("\r\n")
    if len(line) > LINE_MAX_BYTES:
        raise FramingError(414, "Request-URI Too Long")
    if len(rest) > HEADERS_MAX_BYTES:
        raise FramingError(400, "Headers Too Large")
    if _HEADERS.fullmatch(rest) is None:
        raise FramingError(400, "Bad header")
    if len(rest) > LINE_MAX_BYTES and max(map(len, rest.split("\r\n"))) > LINE_MAX_BYTES:
        raise FramingError(400, "Header Line Too Long")
    return line, CIMultiDict([(name, value.rstrip(" \t")) for name, value in _HEADER.findall(rest)])


def _given_length(headers: CIMultiDict[str]) -> int | None:
    """The length that a head announces; None if it announces chunks, or nothing. Raises: FramingError."""
    codings = headers.getall("Transfer-Encoding", None)
    lengths = headers.getall("Content-Length", None)
    if codings is not None:
        if lengths is not None:
            raise FramingError(400, "Both Content-Length and Transfer-Encoding")
        if len(codings) > 1 or codings[0].lower() != "chunked":
            raise FramingError(501, "Unsupported Transfer-Coding header value specified in Transfer-Encoding header")
        return None
    if lengths is None:
        return None
    if len(lengths) > 1 or not (lengths[0].isascii() and lengths[0].isdigit()) or len(lengths[0]) > 19:
        raise FramingError(400, "Invalid Content-Length header value")
    return int(lengths[0])


def _keeps_alive(headers: CIMultiDict[str], minor_version: int) -> bool:
    given = headers.get("Connection")
    if given is None:
        return minor_version == 1
    options = given.lower()
    return "close" not in options if minor_version else "keep-alive" in options


def _check_partial_head(data: bytes, seen: int) -> bytes:
    """The beginning of a head, of which so much was checked before. Raises: FramingError if it can come to no good."""
    if _LONE_NEWLINE.search(data, seen):
        raise FramingError(400, "Bad line ending")
    if data.find(b"\r\n", 0, LINE_MAX_BYTES + 2) < 0 and len(data) > LINE_MAX_BYTES:
        raise FramingError(414, "Request-URI Too Long")
    if len(data) - data.rfind(b"\r\n") > LINE_MAX_BYTES + 4:
        raise FramingError(400, "Header Line Too Long")
    if len(data) > LINE_MAX_BYTES + HEADERS_MAX_BYTES:
        raise FramingError(400, "Headers Too Large")
    return data


def _check_partial_line(data: bytes) -> bytes:
    if len(data) > LINE_MAX_BYTES or _LONE_NEWLINE.search(data):
        raise FramingError(400, "Bad line between chunks")
    return data


def head_bytes(first_line: str, headers: list[tuple[str, str]]) -> bytes:
    """A head ready to be sent. A line break in a value, which would begin a header of its own, becomes a space."""
    lines = [first_line, *[f"{name}: {value}" for name, value in headers], "", ""]
    text = "\r\n".join(lines)
    if text.count("\n") != len(lines) - 1 or text.count("\r") != len(lines) - 1:
        text = "\r\n".join(line.replace("\r", " ").replace("\n", " ") for line in lines)
    return text.encode("utf-8", "surrogateescape")
