"""One connection that carries one request at a time, and what came of each.

A load generator must not be what it measures. So there is no client library here: a non-blocking socket, watched by the
event loop; requests are byte strings made by `storage`; responses go through `httptools` (llhttp). And its times must
be true: a transport hands bytes to the kernel when the loop comes round, so a stamp taken at `write` is early by all
that the loop did in between. Here the stamp is taken right before `connect` or `send`. The time at which bytes arrived
comes from the kernel (SO_TIMESTAMPNS), which stamps each packet as a capture does; where it does not, the stamp is
taken right after `recv`. So a measured time contains the time that the packets show at this host, and exceeds it by the
way into the kernel; a busy generator does not make the store look slow.

    start ── connect ──▶ sent ─── first byte ─── end        a connection made for this request
    start=sent ───────────────── first byte ─── end         one kept alive

Limits: HTTP/1.1 without TLS; no pipelining; no HEAD (a response's length would promise a body that never comes).
"""

import asyncio
import dataclasses
import errno
import hashlib
import os
import socket
import struct
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from httptools import HttpParserError, HttpResponseParser

from storage_cluster.bench.engine.limits import Allowance

if TYPE_CHECKING:
    from hashlib import _Hash

RECEIVE_BYTES = 256 * 1024
ERROR_BODY_LEN_MAX = 64 * 1024
"""Of an error's body, no more is kept; S3's are XML of some hundred bytes."""
SEND_BUFFERS_MAX = 16
"""Buffers given to one `sendmsg`; the kernel's limit is 1,024, but a socket buffer never takes more than this."""

_SO_TIMESTAMPNS = 35  # include/uapi/asm-generic/socket.h
_ID_HEADERS = frozenset((b"x-trans-id", b"x-openstack-request-id", b"x-amz-request-id"))
"""Hold the id of a request, Swift's and S3's; the first is preferred to the others."""
_TIMESPEC = struct.Struct("@ll")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)

ERROR_KINDS = (
    "status",  # the response says so
    "connect_timeout",  # no SYN-ACK in time
    "connect_refused",
    "connect_failed",  # no route, no free local port, no descriptor
    "reset",  # closed or reset before a response was begun
    "read_timeout",  # nothing moved in time
    "short_body",  # closed or reset within the response
    "bad_response",  # not HTTP
    "wrong_hash",  # not what was written, or stored as something else than what was sent
    "cancelled",  # by us: the run was over, or called off
)


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """Where connections go."""

    family: socket.AddressFamily
    address: tuple[str | int, ...]  # as `connect` takes it

    @property
    def text(self) -> str:
        """ADDRESS:PORT."""
        host = f"[{self.address[0]}]" if self.family == socket.AF_INET6 else self.address[0]
        return f"{host}:{self.address[1]}"


@dataclasses.dataclass(frozen=True)
class Timeouts:
    """How long to wait, in seconds."""

    connect_s: float = 10.0
    read_s: float = 60.0  # without a byte moving


class Reply:
    """What came of one attempt. Times in ns; durations are from the monotonic clock, `start_ns` is the wall clock's."""

    __slots__ = (
        "body",
        "body_len",
        "connect_ns",
        "digest",
        "end_ns",
        "error",
        "etag",
        "first_byte_ns",
        "headers",
        "local_port",
        "start_ns",
        "started",
        "status",
        "transaction_id",
    )

    def __init__(self) -> None:
        self.start_ns = 0  # just before connect or send
        self.started = 0  # the same on the monotonic clock
        self.connect_ns = -1  # after the start the connection was there; -1: it was there before
        self.first_byte_ns = -1  # after the start; -1: none came
        self.end_ns = 0  # after the start: the last byte, or the failure
        self.status = 0  # 0: no response
        self.error = ""  # one of ERROR_KINDS
        self.transaction_id = ""
        self.etag = ""
        self.local_port = 0
        self.body_len = 0
        self.body = b""  # if it was to be kept, or is that of an error
        self.headers: dict[str, str] = {}  # names in lower case; if they were to be kept
        self.digest = b""  # MD5 of the body, if it was asked for


class Connection:
    """A connection to an endpoint, made when needed, kept or closed after each request."""

    def __init__(
        self,
        endpoint: Endpoint,
        timeouts: Timeouts = Timeouts(),
        *,
        keep_alive: bool = True,
        loop: asyncio.AbstractEventLoop | None = None,
        allowance: Allowance | None = None,
    ) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._allowance = allowance or Allowance(0)
        self._endpoint = endpoint
        self._timeouts = timeouts
        self._keep_alive = keep_alive
        self._socket: socket.socket | None = None
        self._local_port = 0
        self._connecting = False
        self._writing = False
        self._parser: HttpResponseParser | None = None
        self._reply = Reply()
        self._unsent: list[bytes | memoryview] = []
        self._done: asyncio.Future[None] | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._hash: _Hash | None = None
        self._kept: list[bytes] | None = None
        self._headers_kept = False
        self._length: int | None = None
        self._until_close = False
        self._in_response = False
        self._is_head = False
        self._chunked = False

    @property
    def reply(self) -> Reply:
        """What came of the last request, or comes of the one on its way."""
        return self._reply

    async def exchange(
        self,
        head: bytes,
        body: Sequence[bytes | memoryview] = (),
        *,
        hashed: bool = False,
        kept: bool = False,
        headers_kept: bool = False,
    ) -> Reply:
        """Send a request, wait for its response; whatever happens is in the reply.

        `hashed` takes the MD5 of the response's body, `kept` keeps it and the headers, `headers_kept` only these.
        """
        reply = self._reply = Reply()
        self._unsent = [head, *body]
        self._hash = hashlib.md5(usedforsecurity=False) if hashed else None
        self._kept = [] if kept else None
        self._headers_kept = kept or headers_kept
        self._in_response = False
        self._is_head = head.startswith(b"HEAD ")
        done = self._done = self._loop.create_future()
        if self._socket is None:
            self._connect()
        else:
            reply.local_port = self._local_port
            self._begin(self._timeouts.read_s)
            self._send()
        try:
            await done
        except asyncio.CancelledError:
            reply.end_ns = time.perf_counter_ns() - reply.started
            reply.error = "cancelled"
            self.close()
            raise
        if self._kept is not None:
            reply.body = b"".join(self._kept)
        if self._hash is not None:
            reply.digest = self._hash.digest()
        return reply

    def close(self) -> None:
        """Close it; the next request makes a new one."""
        self._drop()
        self._done = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # what the parser calls

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of the response."""
        lower = name.lower()
        if lower in _ID_HEADERS:
            if lower == b"x-trans-id" or not self._reply.transaction_id:
                self._reply.transaction_id = value.decode("latin-1")
        elif lower == b"etag":
            self._reply.etag = value.decode("latin-1").strip('"')
        elif lower == b"content-length":
            self._length = int(value) if value.isdigit() else None
        elif lower == b"transfer-encoding":
            self._chunked = True
        if self._headers_kept:
            self._reply.headers[lower.decode("latin-1")] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The response's head is whole."""
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status >= 200:
            self._in_response = True
            self._reply.status = status
            if status >= 400 and self._kept is None:
                self._kept = []
            bodiless = status in (204, 304) or self._is_head
            self._until_close = self._length is None and not self._chunked and not bodiless
            if self._is_head:  # no body comes, whatever its length is said to be: the parser would wait for it
                self._finish("")
                self._parser = HttpResponseParser(self)

    def on_body(self, body: bytes) -> None:
        """A part of the response's body."""
        self._reply.body_len += len(body)
        if self._hash is not None:
            self._hash.update(body)
        if self._kept is not None and (self._reply.status < 400 or self._reply.body_len <= ERROR_BODY_LEN_MAX):
            self._kept.append(body)

    def on_message_complete(self) -> None:
        """The response is whole (or was only a 100 Continue)."""
        if self._reply.status:
            self._finish("")

    # the way of a request

    def _begin(self, timeout_s: float) -> None:
        self._deadline = self._loop.time() + timeout_s
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline, self._check_deadline)
        self._reply.start_ns = time.time_ns()
        self._reply.started = time.perf_counter_ns()

    def _connect(self) -> None:
        try:
            made = self._socket_if_allowed()
        except OSError:  # no descriptors left
            self._begin(self._timeouts.connect_s)
            self._loop.call_soon(self._finish, "connect_failed")
            return
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket = made
        self._connecting = True
        self._parser = HttpResponseParser(self)
        self._begin(self._timeouts.connect_s)
        code = made.connect_ex(self._endpoint.address)
        if code in (0, errno.EINPROGRESS):
            self._writing = True
            self._loop.add_writer(made.fileno(), self._on_writable)
        else:
            self._loop.call_soon(self._finish, _connect_kind(code))

    def _socket_if_allowed(self) -> socket.socket:
        """A new socket. Raises: OSError."""
        if not self._allowance.take():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        try:
            return socket.socket(self._endpoint.family, socket.SOCK_STREAM)
        except OSError:
            self._allowance.give_back()
            raise

    def _on_writable(self) -> None:
        if self._socket is None:
            return
        if self._connecting:
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._finish(_connect_kind(code))
                return
            self._connecting = False
            self._local_port = self._reply.local_port = self._socket.getsockname()[1]
            self._loop.add_reader(self._socket.fileno(), self._on_readable)
            self._deadline = self._loop.time() + self._timeouts.read_s
            self._reply.connect_ns = time.perf_counter_ns() - self._reply.started
        self._send()

    def _send(self) -> None:
        assert self._socket is not None
        while self._unsent:
            try:
                sent = self._socket.sendmsg(self._unsent[:SEND_BUFFERS_MAX])
            except BlockingIOError:
                self._want_writable(True)
                return
            except OSError:
                self._receive_rest()
                return
            self._consume(sent)
        self._want_writable(False)

    def _consume(self, sent: int) -> None:
        """Take what was sent off what is to be sent."""
        self._deadline = self._loop.time() + self._timeouts.read_s
        count = 0
        for part in self._unsent:
            if sent < len(part):
                break
            sent -= len(part)
            count += 1
        del self._unsent[:count]
        if sent:
            self._unsent[0] = memoryview(self._unsent[0])[sent:]

    def _want_writable(self, wanted: bool) -> None:
        if wanted != self._writing and self._socket is not None:
            self._writing = wanted
            if wanted:
                self._loop.add_writer(self._socket.fileno(), self._on_writable)
            else:
                self._loop.remove_writer(self._socket.fileno())

    def _receive_rest(self) -> None:
        """The server closed while we sent: what it said before, if anything, is the answer."""
        self._unsent.clear()
        self._want_writable(False)
        self._on_readable()

    def _on_readable(self) -> None:
        if self._socket is None:
            return
        try:
            data, ancillary, _, _ = self._socket.recvmsg(RECEIVE_BYTES, _ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        stamp = time.perf_counter_ns() - self._reply.started
        if ancillary:
            seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2])
            arrived = seconds * 1_000_000_000 + nanoseconds - self._reply.start_ns
            stamp = arrived if 0 < arrived < stamp else stamp
        if self._done is None:  # between requests: closed, or garbage
            self._drop()
            return
        self._reply.end_ns = stamp
        if not data:
            self._on_eof()
            return
        if self._reply.first_byte_ns < 0:
            self._reply.first_byte_ns = stamp
            self._length, self._chunked = None, False
        self._deadline = self._loop.time() + self._timeouts.read_s
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except HttpParserError:
            self._finish("bad_response")

    def _on_eof(self) -> None:
        if self._in_response:
            self._finish("" if self._until_close else "short_body")
        else:
            self._finish("bad_response" if self._reply.first_byte_ns >= 0 else "reset")

    def _finish(self, error: str) -> None:
        done, self._done = self._done, None
        if done is None or done.done():
            return
        reply = self._reply
        reply.error = error
        if not reply.end_ns:
            reply.end_ns = time.perf_counter_ns() - self._reply.started
        if error or self._unsent or self._must_close():
            self._drop()
        done.set_result(None)

    def _must_close(self) -> bool:
        assert self._parser is not None
        return not self._keep_alive or self._until_close or not self._parser.should_keep_alive()

    def _check_deadline(self) -> None:
        self._timer = None
        if self._done is None:
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._check_deadline)
        else:
            self._reply.end_ns = time.perf_counter_ns() - self._reply.started
            self._finish("connect_timeout" if self._connecting else "read_timeout")

    def _drop(self) -> None:
        made, self._socket = self._socket, None
        if made is None:
            return
        self._allowance.give_back()
        self._loop.remove_reader(made.fileno())
        self._loop.remove_writer(made.fileno())
        self._writing = self._connecting = False
        made.close()


def _connect_kind(code: int) -> str:
    if code == errno.ECONNREFUSED:
        return "connect_refused"
    return "connect_timeout" if code == errno.ETIMEDOUT else "connect_failed"
