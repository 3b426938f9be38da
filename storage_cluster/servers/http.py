"""What all servers share on their front side: requests in, responses out, one log line for each.

A server is one coroutine function: `Request` in, `aiohttp.web.StreamResponse` out, or `Refusal` raised. Paths are
parsed here and not by aiohttp, because an object's name may hold slashes, dots and percent signs, and means them.

Log (JSON lines, `logs/<host>/<service>.jsonl`): the ground truth of what was asked and answered, one line a request:
transaction_id, method, path, status, start_ns, end_ns (wall clock: head parsed, last byte handed to the kernel),
bytes_in, bytes_out, peer, local. Nothing else in the project reads it.
"""

import asyncio
import dataclasses
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from io import TextIOBase
from urllib.parse import parse_qsl, unquote_to_bytes

from aiohttp import web

from storage_cluster.servers.times import new_transaction_id

READ_CHUNK_BYTES = 262_144
ACCEPT_BACKLOG = 4096
SHUTDOWN_GRACE_S = 1.0

_BODIES = {
    # Swift's words for the statuses that people meet.
    400: "The server could not comply with the request since it is either malformed or otherwise incorrect.",
    401: "This server could not verify that you are authorized to access the document you requested.",
    403: "Access was denied to this resource.",
    404: "The resource could not be found.",
    405: "The method is not allowed for this resource.",
    409: "There was a conflict when trying to complete your request.",
    411: "Content-Length is required.",
    412: "A precondition for this request was not met.",
    413: "The body of your request was too large for this server.",
    416: "The Range requested is not available.",
    422: "Unable to process the contained instructions",
    499: "The client was disconnected during request.",
    503: "The server is currently unavailable. Please try again at a later time.",
}


class Refusal(Exception):
    """The answer is an error: a status and, where the usual words do not fit, a text."""

    def __init__(self, status: int, text: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.text = text
        self.headers = dict(headers or {})


class ClientGone(Exception):
    """The peer closed the connection, or broke the framing, before its body was complete."""


@dataclasses.dataclass
class Request:
    """One request with its path taken apart."""

    raw: web.BaseRequest
    segments: tuple[str, ...]  # decoded; at most `split` of them, the last one keeps its slashes
    query: dict[str, str]
    transaction_id: str
    bytes_in: int = 0

    @property
    def method(self) -> str:
        """GET, PUT, …"""
        return self.raw.method

    @property
    def headers(self) -> Mapping[str, str]:
        """The request's headers, found whatever their case."""
        return self.raw.headers

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for `100 Continue` before it sends the body."""
        return self.raw.headers.get("Expect", "").lower() == "100-continue"

    async def send_continue(self) -> None:
        """Tell a client that waits for it to go on."""
        if self.expects_continue and self.raw.transport is not None:
            self.raw.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def body_chunks(self) -> AsyncIterator[bytes]:
        """The body, as it arrives. Raises: ClientGone, also where the body ends before its announced length."""
        try:
            async for chunk in self.raw.content.iter_any():
                self.bytes_in += len(chunk)
                yield chunk
        except (ConnectionError, web.RequestPayloadError) as error:
            raise ClientGone from error

    @property
    def content_length(self) -> int | None:
        """The body's length if the client gave one (the parser has seen to it that it is a number)."""
        text = self.raw.headers.get("Content-Length")
        return None if text is None else int(text)


Handler = Callable[[Request], Awaitable[web.StreamResponse]]


class AccessLog:
    """Writes one JSON line for each request."""

    def __init__(self, stream: TextIOBase) -> None:
        self._stream = stream

    def write(self, **fields: object) -> None:
        """Append a line; it is in the file when this returns."""
        self._stream.write(json.dumps(fields) + "\n")
        self._stream.flush()


def answer(status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> web.Response:
    """A plain response."""
    made = web.Response(status=status, body=body, headers=headers)
    if "Content-Type" not in made.headers and body:
        made.content_type = "text/plain"
    return made


def refusal_response(refusal: Refusal) -> web.Response:
    """An error as Swift words it."""
    title = "Client Disconnect" if refusal.status == 499 else HTTPStatus(refusal.status).phrase
    text = refusal.text
    if text is None:
        text = f"<html><h1>{title}</h1><p>{_BODIES.get(refusal.status, title)}</p></html>"
    return web.Response(
        status=refusal.status,
        reason=title,
        body=text.encode(),
        headers={"Content-Type": "text/html; charset=UTF-8", **refusal.headers},
    )


def split_path(raw_path: str, count: int) -> tuple[str, ...]:
    """At most `count` decoded segments of a path; the last keeps its slashes. Raises: Refusal (412)."""
    if not raw_path.startswith("/"):  # absolute form: http://host/path
        raw_path = "/" + raw_path.partition("://")[2].partition("/")[2]
    try:
        decoded = unquote_to_bytes(raw_path).decode("utf-8")
    except UnicodeDecodeError:
        raise Refusal(412, "Invalid UTF8 or contains NULL") from None
    if "\0" in decoded:
        raise Refusal(412, "Invalid UTF8 or contains NULL")
    return tuple(decoded[1:].split("/", count - 1))


@dataclasses.dataclass
class Front:
    """The front side of one server process."""

    handler: Handler
    log: AccessLog
    path_segment_count: int
    transaction_id_of: Callable[[web.BaseRequest], str]
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
        request = Request(
            raw=raw,
            segments=(),
            query=dict(parse_qsl(query, keep_blank_values=True)),
            transaction_id=self.transaction_id_of(raw),
        )
        peer, local = (_address(raw, "peername"), _address(raw, "sockname"))
        response = await self._answer(request, raw_path)
        self.log.write(
            transaction_id=request.transaction_id,
            method=raw.method,
            path=raw.raw_path,
            status=response.status,
            start_ns=start_ns,
            end_ns=time.time_ns(),
            bytes_in=request.bytes_in,
            bytes_out=response.body_length if response.prepared else 0,
            peer=peer,
            local=local,
        )
        return response

    async def _answer(self, request: Request, raw_path: str) -> web.StreamResponse:
        try:
            request.segments = split_path(raw_path, self.path_segment_count)
            response = await self.handler(request)
        except Refusal as refusal:
            response = refusal_response(refusal)
        except (ClientGone, ConnectionError):
            response = refusal_response(Refusal(499))
        if not response.prepared:
            response.headers["X-Trans-Id"] = request.transaction_id
            response.headers["X-Openstack-Request-Id"] = request.transaction_id
        try:
            await response.prepare(request.raw)
            await response.write_eof()
        except ConnectionError:
            response.force_close()
        return response


def given_transaction_id(raw: web.BaseRequest) -> str:
    """The transaction id that a server behind the proxy was given; `-` as in Swift's logs if none."""
    return raw.headers.get("X-Trans-Id", "-")


def own_transaction_id(raw: web.BaseRequest) -> str:
    """A new transaction id, for the servers that clients talk to."""
    return new_transaction_id()


def _address(raw: web.BaseRequest, which: str) -> str:
    found = raw.transport.get_extra_info(which) if raw.transport is not None else None
    return f"{found[0]}:{found[1]}" if found else "-"
