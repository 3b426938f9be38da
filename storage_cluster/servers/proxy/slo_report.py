"""What came of writing a static large object, as a document: which segments are wrong; with `heartbeat=on` all of it.

With `heartbeat=on` the response begins at once, with 202, and blanks are sent while the segments are looked at; the
status follows in the document.

Source: Swift, "Static Large Objects"; the documents are those of Swift 2.30.1.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from urllib.parse import quote
from xml.sax.saxutils import escape

from multidict import CIMultiDict

from storage_cluster.servers.http.messages import Call, Refusal, Reply, usual_reason, usual_text
from storage_cluster.servers.proxy.accept import best_match

_OFFERED = ("text/plain", "application/json", "application/xml", "text/xml")
_BEAT_AFTER_S = 10.0
_TAGS = ("<html><h1>", "</h1><p>", "</p></html>")

Problem = tuple[str, str]
"""A path, and what is wrong with it."""


class Problems(Refusal):
    """Segments are not what the manifest says (400)."""

    def __init__(self, call: Call, problems: Sequence[Problem]) -> None:
        self.problems = problems
        media_type = media_type_for(call)
        super().__init__(400, document(media_type, {}, problems), {"Content-Type": media_type})


def media_type_for(call: Call) -> str:
    """The media type of a document for a client; text for who wants none of them."""
    try:
        return best_match(call.headers.get("Accept", ""), _OFFERED) or "text/plain"
    except Refusal:
        return "text/plain"


def document(media_type: str, fields: Mapping[str, str], problems: Sequence[Problem]) -> str:
    """Fields and problems in one of the forms."""
    quoted = [(quote(path, errors="surrogateescape"), text) for path, text in problems]
    if media_type == "application/json":
        return json.dumps({**fields, "Errors": quoted})
    names = sorted(fields)
    if media_type == "text/plain":
        lines = [
            *(f"{name}: {fields[name]}" for name in names),
            "Errors:",
            *(f"{path}, {what}" for path, what in quoted),
        ]
        return "\n".join(lines) + "\n"
    tags = [(name.replace(" ", "_").lower(), escape(fields[name])) for name in names]
    objects = [f"<object><name>{escape(p)}</name><status>{escape(t)}</status></object>" for p, t in quoted]
    parts = [
        "<upload>",
        *(f"<{tag}>{text}</{tag}>" for tag, text in tags),
        "<errors>",
        *objects,
        "</errors>",
        "</upload>",
    ]
    return "\n".join(parts) + "\n"


def beating(call: Call, work: Callable[[], Awaitable[Reply]]) -> Reply:
    """A reply that begins now and ends with what came of the work."""
    media_type = media_type_for(call)
    return Reply(202, CIMultiDict({"Content-Type": media_type}), _beats(work, media_type))


async def _beats(work: Callable[[], Awaitable[Reply]], media_type: str) -> AsyncIterator[bytes]:
    task = asyncio.ensure_future(_outcome(work))
    try:
        yield b" "
        while not (await asyncio.wait({task}, timeout=_BEAT_AFTER_S))[0]:
            yield b" "
        yield b"\r\n\r\n" + document(media_type, *task.result()).encode("utf-8", "surrogateescape")
    finally:
        task.cancel()


async def _outcome(work: Callable[[], Awaitable[Reply]]) -> tuple[dict[str, str], Sequence[Problem]]:
    """The document's fields and problems."""
    problems: Sequence[Problem] = ()
    try:
        reply = await work()
    except Problems as refusal:
        reply, problems = Reply(refusal.status, body=_plain(refusal.status)), refusal.problems
    except Refusal as refusal:
        reply = Reply(refusal.status, body=_plain(refusal.status))
    fields = {"Response Status": f"{reply.status} {reply.phrase}", "Response Body": (await reply.read()).decode()}
    if reply.is_success:
        fields |= {"Etag": reply.headers["Etag"], "Last Modified": reply.headers["Last-Modified"]}
    return fields, problems


def _plain(status: int) -> bytes:
    """A refusal's usual words without their markup."""
    text = usual_text(status)
    for tag in _TAGS[::2]:
        text = text.replace(tag, "")
    return text.replace(_TAGS[1], "\n").encode() or usual_reason(status).encode()
