"""Requests and responses as values, independent of sockets; every server's behaviour is expressed in them.

A server is a `Handler`: a `Call` in, a `Reply` out, or `Refusal` raised, which `reply_of` turns into the reply with
Swift's words. `http.front` makes calls from what arrives on a socket and sends replies; tests make them by hand.

A call that causes others (a copy reads, a manifest reads its segments) makes them with `derive`: the same transaction
id, identity and authorization, and of the headers only what says who asks.

Authorization is a hook, since the one who knows a container's access list is not the one who knows the user: the auth
middleware sets `authorize`; whoever knows the list calls `check_access`. A hook that is set already stays: TempURL sets
its own, `derive(privileged=True)` sets `everything_allowed`. Storage servers, which only the proxy reaches, have none.

Source: Swift, "Middleware and Metadata"; swift.common.swob (statuses' words), swift.common.wsgi (make_subrequest).
"""

import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Self
from urllib.parse import quote, urlencode

from multidict import CIMultiDict

ACCESS = "X-Backend-Access"
"""The reserved access that a request belongs to (`disks/accesses.py`), with all that it causes."""
_INHERITED_HEADERS = ("Host", "Referer", "User-Agent", "X-Newest", ACCESS)
_REASONS = {
    413: "Request Entity Too Large",
    416: "Requested Range Not Satisfiable",
    422: "Unprocessable Entity",
    431: "Too many headers",
    498: "Rate Limited",
    499: "Client Disconnect",
}
_TEXTS = {
    202: "The request is accepted for processing.",
    400: "The server could not comply with the request since it is either malformed or otherwise incorrect.",
    401: "This server could not verify that you are authorized to access the document you requested.",
    402: "Access was denied for financial reasons.",
    403: "Access was denied to this resource.",
    404: "The resource could not be found.",
    405: "The method is not allowed for this resource.",
    406: "The resource is not available in a format acceptable to your browser.",
    408: "The server has waited too long for the request to be sent by the client.",
    409: "There was a conflict when trying to complete your request.",
    410: "This resource is no longer available.",
    411: "Content-Length header required.",
    412: "A precondition for this request was not met.",
    413: "The body of your request was too large for this server.",
    414: "The request URI was too long for this server.",
    415: "The request media type is not supported by this server.",
    416: "The Range requested is not available.",
    417: "Expectation failed.",
    422: "Unable to process the contained instructions",
    499: "The client was disconnected during request.",
    500: "The server has either erred or is incapable of performing the requested operation.",
    501: "The requested method is not implemented by this server.",
    502: "Bad gateway.",
    503: "The server is currently unavailable. Please try again at a later time.",
    504: "A timeout has occurred speaking to a backend server.",
    507: "There was not enough space to save the resource. Drive: unknown",
}


PLAIN = {"Content-Type": "text/plain"}
"""Refusals are text/html unless this goes with them, as with many of Swift's about what a client sent."""


class Refusal(Exception):
    """The answer is an error: a status and, where the usual words do not fit, a text (sent as text/html as it is)."""

    def __init__(self, status: int, text: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text
        self.headers = dict(headers or {})

    def reply(self) -> "Reply":
        """The error as Swift words it."""
        headers = CIMultiDict({"Content-Type": "text/html; charset=UTF-8"})
        headers.update(self.headers)
        text = usual_text(self.status) if self.text is None else self.text
        return Reply(self.status, headers, text.encode("utf-8", "surrogateescape"))


class ClientGone(Exception):
    """The peer closed the connection, or broke the framing, before its body was complete."""


class BrokenOff(Exception):
    """The source of a reply's body failed after its first bytes: the receiver must notice that it is incomplete."""


@dataclasses.dataclass(frozen=True)
class Identity:
    """A request's user, and the groups that access lists may name (tempauth: account, account:user, own accounts)."""

    user: str
    groups: frozenset[str]

    def owns(self, account: str) -> bool:
        """Whether the account is the user's own (`AUTH_test` is among the groups)."""
        return account in self.groups


class Body:
    """A request's body, read once, in chunks; asking for the first chunk sends 100 Continue to a waiting client."""

    def __init__(
        self,
        chunks: AsyncIterator[bytes] | None = None,
        length: int | None = 0,
        send_continue: Callable[[], Awaitable[None]] | None = None,
        *,
        framed: bool = True,
        trailers: CIMultiDict[str] | None = None,
        ask_for_more: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`ask_for_more`: sends another `100 Continue`."""
        self._chunks = chunks
        self._ask_for_more = ask_for_more
        self.trailers: CIMultiDict[str] = CIMultiDict() if trailers is None else trailers
        """Headers that stand behind the body; whole once it was read."""
        self.announces_trailers = False
        """Whether the servers that it is passed on to must have the trailers too."""
        self._send_continue = send_continue
        self.has_framing = framed
        """False: the client gave neither a length nor chunks, so there is no body even where one is needed (411)."""
        self.length = length
        """Announced length in bytes; None where it comes in chunks of its own."""
        self.bytes_in = 0
        """Bytes read so far."""
        self.check: Callable[[], None] | None = None
        """Called before each chunk is passed on; raises Refusal where the body is not wanted any more."""

    @classmethod
    def of(cls, data: bytes) -> Self:
        """A body whose bytes are known already."""

        async def chunks() -> AsyncIterator[bytes]:
            if data:
                yield data

        return cls(chunks(), len(data))

    async def proceed(self) -> None:
        """Send `100 Continue` if the client waits for it; once, however often this is called."""
        waiting, self._send_continue = self._send_continue, None
        if waiting is not None:
            await waiting()

    async def ask_for_more(self) -> None:
        """Send another `100 Continue` amid the body: its sender waits for it before the rest."""
        if self._ask_for_more is not None:
            await self._ask_for_more()

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        await self.proceed()
        if self._chunks is not None:
            async for chunk in self._chunks:
                self.bytes_in += len(chunk)
                if self.check is not None:
                    self.check()
                yield chunk

    async def read(self, max_bytes: int) -> bytes:
        """The whole of a small body. Raises: Refusal (413) if it is longer than that."""
        if self.length is not None and self.length > max_bytes:
            raise Refusal(413)
        parts = []
        async for chunk in self:
            parts.append(chunk)
            if self.bytes_in > max_bytes:
                raise Refusal(413)
        return b"".join(parts)


@dataclasses.dataclass
class Shared:
    """What a client's request and those derived from it remember together: see `proxy.infos`."""

    infos: dict[tuple[str, ...], object] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Call:
    """One request."""

    method: str
    names: tuple[str, ...]
    """Decoded path segments. In the proxy those after /v1: account[, container[, object]], () for any other path; in
    a storage server device, partition, account[, container[, object]]. The last one keeps its slashes."""
    query: dict[str, str] = dataclasses.field(default_factory=dict)
    headers: CIMultiDict[str] = dataclasses.field(default_factory=CIMultiDict)
    body: Body = dataclasses.field(default_factory=Body)
    transaction_id: str = "-"
    path: str = ""
    """The whole decoded path; follows `names` in derived calls."""
    target: str = ""
    """Path and query as they came, percent-encoded: what a client's signature covers. Derived calls keep it."""
    peer: str = "-"
    """Who sent it: address:port."""
    identity: Identity | None = None
    """None: anonymous."""
    authorize: "Authorize | None" = None
    owner: bool = False
    """The user owns the account: may see and set its keys and access lists. Set by `authorize`."""
    source: str | None = None
    """Which feature made this derived call ("SLO", "COPY", …), for the log."""
    shared: Shared = dataclasses.field(default_factory=Shared)

    def derive(
        self,
        *,
        method: str | None = None,
        names: tuple[str, ...] | None = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Body | bytes | None = None,
        source: str | None = None,
        privileged: bool = False,
    ) -> "Call":
        """A call that this one causes: no query, no body and hardly a header of its own unless given.

        `privileged`: not subject to access lists (the feature itself needs it, not the user).
        """
        kept = CIMultiDict({name: self.headers[name] for name in _INHERITED_HEADERS if name in self.headers})
        kept.update(headers or {})
        names = self.names if names is None else names
        return dataclasses.replace(
            self,
            method=method or self.method,
            names=names,
            path="/v1/" + "/".join(names),
            query=dict(query or {}),
            headers=kept,
            body=Body.of(body) if isinstance(body, bytes) else body or Body(),
            source=source or self.source,
            authorize=everything_allowed if privileged else self.authorize,
        )

    async def check_access(self, access_list: str | None) -> None:
        """Let the auth middleware decide, given the container's read or write list. Raises: Refusal (401, 403)."""
        if self.authorize is not None:
            await self.authorize(self, access_list)

    @property
    def url_path(self) -> str:
        """The path percent-encoded, with its query."""
        encoded = quote(self.path, errors="surrogateescape")
        return f"{encoded}?{urlencode(self.query)}" if self.query else encoded


@dataclasses.dataclass
class Reply:
    """One response. For HEAD give the headers of a GET, Content-Length too; no body is sent."""

    status: int
    headers: CIMultiDict[str] = dataclasses.field(default_factory=CIMultiDict)
    body: bytes | AsyncIterator[bytes] = b""
    reason: str | None = None
    on_close: Callable[[], None] | None = None
    """Lets go of what the body is read from; called once the reply is sent or dropped."""

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def phrase(self) -> str:
        """The reason phrase."""
        return self.reason or usual_reason(self.status)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in pieces. Raises: BrokenOff."""
        if isinstance(self.body, bytes):
            if self.body:
                yield self.body
            return
        async for chunk in self.body:
            yield chunk

    async def read(self) -> bytes:
        """The whole body, which stays readable. Raises: BrokenOff."""
        try:
            whole = b"".join([chunk async for chunk in self.chunks()])
        finally:
            await self.close()
        self.body = whole
        return whole

    def as_body(self) -> Body:
        """The body as that of another call; if it breaks off, that call is refused (503), so that nothing is kept."""
        size = self.headers.get("Content-Length")
        return Body(self._unbroken_chunks(), None if size is None else int(size))

    async def _unbroken_chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self.chunks():
                yield chunk
        except BrokenOff:
            raise Refusal(503) from None

    async def close(self) -> None:
        """Release the source of a body that will not be read to its end."""
        if isinstance(self.body, AsyncGenerator):
            await self.body.aclose()
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close()


Authorize = Callable[[Call, str | None], Awaitable[None]]
"""Raises Refusal unless the call's user may do this, given the container's access list (None: not known, or none)."""

Handler = Callable[[Call], Awaitable[Reply]]


async def everything_allowed(call: Call, _: str | None) -> None:
    """The authorization hook of calls that a feature makes for itself: it allows everything."""
    call.owner = True


async def reply_of(handler: Handler, call: Call) -> Reply:
    """The handler's reply; a refusal becomes a reply."""
    try:
        return await handler(call)
    except Refusal as refusal:
        return refusal.reply()


def reply(status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Reply:
    """A plain reply."""
    return Reply(status, CIMultiDict(headers or {}), body)


def usual_reason(status: int) -> str:
    """The reason phrase of a status, as in Swift."""
    return _REASONS.get(status) or HTTPStatus(status).phrase


def usual_text(status: int) -> str:
    """The body that Swift gives an error."""
    if status not in _TEXTS:
        return ""
    return f"<html><h1>{usual_reason(status)}</h1><p>{_TEXTS[status]}</p></html>"
