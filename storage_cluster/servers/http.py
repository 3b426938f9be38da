"""The wire on the front side of every server: what arrives on a socket becomes a `Call`, a `Reply` goes out.

Paths are parsed here and not by aiohttp, because an object's name may hold slashes, dots and percent signs, and means
them.

Log (JSON lines, `logs/<host>/<service>.jsonl`): the ground truth of what was asked and answered, one line a request:
transaction_id, method, path, status, start_ns, end_ns (wall clock: head parsed, last byte handed to the kernel),
bytes_in, bytes_out, peer, local. Nothing else in the project reads it.
"""

import asyncio
import dataclasses
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from io import TextIOBase
from urllib.parse import parse_qsl, unquote_to_bytes

from aiohttp import web
from multidict import CIMultiDict

from storage_cluster.servers.messages import Body, BrokenOff, Call, ClientGone, Handler, Refusal, Reply, answered
from storage_cluster.servers.times import new_transaction_id

ACCEPT_BACKLOG = 4096
SHUTDOWN_GRACE_S = 1.0
DEFAULT_CONTENT_TYPE = "text/html; charset=UTF-8"

NamesOf = Callable[[str], tuple[str, ...]]
"""A call's `names` from its decoded path. Raises: Refusal."""

TransactionIdOf = Callable[[str, Mapping[str, str]], str]
"""A call's transaction id from its raw path and headers."""


class AccessLog:
    """Writes one JSON line for each request."""

    def __init__(self, stream: TextIOBase) -> None:
        self._stream = stream

    def write(self, **fields: object) -> None:
        """Append a line; it is in the file when this returns."""
        self._stream.write(json.dumps(fields) + "\n")
        self._stream.flush()


@dataclasses.dataclass
class Front:
    """The front side of one server process."""

    handler: Handler
    log: AccessLog
    names_of: NamesOf
    transaction_id_of: TransactionIdOf
    _server: web.Server | None = None

    async def serve(self, listening: socket.socket) -> asyncio.Server:
        """Start answering on a bound socket."""
        self._server = web.Server(self._handle, access_log=None, auto_decompress=False)
        return await asyncio.get_running_loop().create_server(self._server, sock=listening, backlog=ACCEPT_BACKLOG)

    async def shutdown(self) -> None:
        """Close the connections that are left."""
        if self._server is not None:
            self._server.pre_shutdown()
            await self._server.shutdown(SHUTDOWN_GRACE_S)

    async def _handle(self, raw: web.BaseRequest) -> web.StreamResponse:
        start_ns = time.time_ns()
        raw_path, _, query = raw.raw_path.partition("?")
        call = Call(
            method=raw.method,
            names=(),
            query=dict(parse_qsl(query, keep_blank_values=True, errors="surrogateescape")),
            headers=CIMultiDict(raw.headers),
            body=_body(raw),
            transaction_id=self.transaction_id_of(raw_path, raw.headers),
            peer=_address(raw, "peername"),
        )
        local = _address(raw, "sockname")
        reply = await self._reply(call, raw_path)
        response = await _sent(raw, call, reply)
        self.log.write(
            transaction_id=call.transaction_id,
            method=raw.method,
            path=raw.raw_path,
            status=reply.status,
            start_ns=start_ns,
            end_ns=time.time_ns(),
            bytes_in=call.body.bytes_in,
            bytes_out=response.body_length if response.prepared else 0,
            peer=call.peer,
            local=local,
        )
        return response

    async def _reply(self, call: Call, raw_path: str) -> Reply:
        try:
            call.path = decoded_path(raw_path)
            call.names = self.names_of(call.path)
            return await answered(self.handler, call)
        except Refusal as refusal:
            return refusal.reply()
        except ClientGone:
            return Refusal(499).reply()


def decoded_path(raw_path: str) -> str:
    """The path of a request line without its percent signs. Raises: Refusal (412)."""
    if not raw_path.startswith("/"):  # absolute form: http://host/path
        raw_path = "/" + raw_path.partition("://")[2].partition("/")[2]
    try:
        decoded = unquote_to_bytes(raw_path).decode("utf-8")
    except UnicodeDecodeError:
        raise Refusal(412, "Invalid UTF8 or contains NULL") from None
    if "\0" in decoded:
        raise Refusal(412, "Invalid UTF8 or contains NULL")
    return decoded


def segments(count: int) -> NamesOf:
    """Names are at most this many segments of the path; the last keeps its slashes."""
    return lambda path: tuple(path[1:].split("/", count - 1))


def given_transaction_id(_: str, headers: Mapping[str, str]) -> str:
    """The transaction id that a server behind the proxy was given; `-` as in Swift's logs if none."""
    return headers.get("X-Trans-Id", "-")


def own_transaction_id(_: str, __: Mapping[str, str]) -> str:
    """A new transaction id, for the servers that clients talk to."""
    return new_transaction_id()


def _body(raw: web.BaseRequest) -> Body:
    async def send_continue() -> None:
        if raw.transport is not None:
            raw.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def chunks() -> AsyncIterator[bytes]:
        try:
            async for chunk in raw.content.iter_any():
                yield chunk
        except (ConnectionError, web.RequestPayloadError) as error:
            raise ClientGone from error

    headers = raw.headers
    waits = headers.get("Expect", "").lower() == "100-continue"
    chunked, framed = "Transfer-Encoding" in headers, "Content-Length" in headers
    length = None if chunked else int(headers.get("Content-Length", "0"))  # the parser has seen to it: a number
    return Body(chunks(), length, send_continue if waits else None, framed=chunked or framed)


async def _sent(raw: web.BaseRequest, call: Call, reply: Reply) -> web.StreamResponse:
    """Send a reply; `reply.status` becomes 499 where the client left before its end."""
    headers = CIMultiDict(reply.headers)
    headers.setdefault("Content-Type", DEFAULT_CONTENT_TYPE)
    headers["X-Trans-Id"] = headers["X-Openstack-Request-Id"] = call.transaction_id
    if call.method == "HEAD" and not reply.succeeded:
        headers["Content-Length"] = "0"  # as Swift: of an error's text not even the length is told
    whole = reply.body if isinstance(reply.body, bytes) else b""
    response: web.StreamResponse
    if isinstance(reply.body, bytes) or call.method == "HEAD":
        body = None if call.method == "HEAD" and "Content-Length" in headers else whole
        response = web.Response(status=reply.status, reason=reply.phrase, headers=headers, body=body)
    else:
        response = web.StreamResponse(status=reply.status, reason=reply.phrase, headers=headers)
    try:
        await response.prepare(raw)
        if not isinstance(response, web.Response):
            async for chunk in reply.chunks():
                await response.write(chunk)
        await response.write_eof()
    except ConnectionError:
        reply.status = 499
        response.force_close()
    except BrokenOff:
        _abort(raw)
    finally:
        await reply.close()
    return response


def _abort(raw: web.BaseRequest) -> None:
    if raw.transport is not None:
        raw.transport.abort()


def _address(raw: web.BaseRequest, which: str) -> str:
    found = raw.transport.get_extra_info(which) if raw.transport is not None else None
    return f"{found[0]}:{found[1]}" if found else "-"
