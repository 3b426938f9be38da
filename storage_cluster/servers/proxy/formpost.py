"""FormPost: a web page's form that uploads files without a token, signed by one of the account's or container's keys.

The form's fields `redirect`, `max_file_size`, `max_file_count`, `expires` and `signature` come before its files; signed
are the path and the first four of them, a line each. Each file becomes the object `path + filename`.

Source: Swift, "FormPost", and the answers of Swift 2.30.1.
"""

import time
from collections.abc import AsyncIterator
from urllib.parse import quote

from storage_cluster.servers.http.messages import Body, Call, Handler, Identity, Refusal, Reply, reply, reply_of
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.infos import Infos
from storage_cluster.servers.proxy.multipart import FormReader, Part, boundary_of
from storage_cluster.servers.proxy.signatures import Key, Signature, keys_for

_FIELD_MAX_BYTES = 4096
_PLAIN = {"Content-Type": "text/plain"}
_HEADER_FIELDS = {"x_delete_at": "X-Delete-At", "x_delete_after": "X-Delete-After"}


class FormPost:
    """Takes uploads from signed forms."""

    def __init__(self, context: ProxyContext) -> None:
        self._infos = context.infos

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Answer a form; pass on anything else. Raises: Refusal (400, 401)."""
        boundary = boundary_of(call.headers.get("Content-Type", "")) if call.method == "POST" else None
        if boundary is None or len(call.names) < 2:
            return await inner(call)
        return await _Form(call, inner, self._infos).take(FormReader(call.body, boundary))


class _Form:
    """One form being read."""

    def __init__(self, call: Call, inner: Handler, infos: Infos) -> None:
        self._call = call
        self._inner = inner
        self._infos = infos
        self._fields: dict[str, str] = {}

    async def take(self, reader: FormReader) -> Reply:
        status, message, count = 400, "no files to process", 0
        while (part := await reader.next_part()) is not None:
            if part.filename is None:
                self._fields[part.name.lower()] = await _small(reader)
                continue
            if not part.filename:
                await _small(reader)
                continue
            count += 1
            if count > self._number("max_file_count"):
                status, message = 400, "max file count exceeded"
                break
            status, message = await self._put(part, reader), ""
            if not 200 <= status < 300:
                break
        return self._answer(status, message)

    async def _put(self, part: Part, reader: FormReader) -> int:
        max_bytes = self._number("max_file_size")
        headers = self._headers(part)
        key = await self._key()
        names = (*self._call.names[:2], self._prefix() + (part.filename or ""))
        derived = self._call.derive(
            method="PUT",
            names=names,
            headers=headers,
            body=Body(_limit_length(reader.content(), max_bytes), None),
            source="FP",
        )
        derived.identity, derived.authorize = Identity(".formpost", frozenset()), key.hook()
        stored = await reply_of(self._inner, derived)
        if stored.status == 413:
            raise Refusal(400, "FormPost: max_file_size exceeded", _PLAIN)
        return stored.status

    async def _key(self) -> Key:
        expires_s = self._number("expires", "expired not an integer")
        if expires_s < time.time():
            raise _refusal("Form Expired")
        names = ("redirect", "max_file_size", "max_file_count")
        signed = "\n".join([self._call.path, *(self._fields.get(name, "") for name in names), str(expires_s)])
        signature = Signature.parse(self._fields.get("signature", ""))
        keys = await keys_for(self._infos, self._call, *self._call.names[:2])
        key = signature.key_of((signed,), keys) if signature else None
        if key is None:
            raise _refusal("Invalid Signature")
        return key

    def _headers(self, part: Part) -> dict[str, str]:
        headers = {"Content-Type": self._fields.get("content-type") or part.content_type or "application/octet-stream"}
        if "content-encoding" in self._fields:
            headers["Content-Encoding"] = self._fields["content-encoding"]
        for field, header in _HEADER_FIELDS.items():
            if field in self._fields:
                self._number(field, f"{field} not an integer: Unix timestamp required.")
                headers[header] = self._fields[field]
        return headers

    def _prefix(self) -> str:
        return self._call.names[2] if len(self._call.names) == 3 else ""

    def _number(self, field: str, trouble: str | None = None) -> int:
        try:
            return int(self._fields.get(field) or 0)
        except ValueError:
            raise Refusal(400, f"FormPost: {trouble or f'{field} not an integer'}", _PLAIN) from None

    def _answer(self, status: int, message: str) -> Reply:
        redirect = self._fields.get("redirect")
        if redirect:
            joint = "&" if "?" in redirect else "?"
            location = f"{redirect}{joint}status={status}&message={quote(message)}"
            page = f'<html><body><p><a href="{location}">Click to continue...</a></p></body></html>'
            return reply(303, {"Location": location}, page.encode())
        answer = reply(status, _PLAIN)
        text = f"{status} {answer.phrase}" + (f"\r\nFormPost: {message.title()}" if message else "")
        answer.body = text.encode()
        return answer


async def _limit_length(chunks: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    left = max_bytes
    async for chunk in chunks:
        left -= len(chunk)
        if left < 0:
            raise Refusal(413)
        yield chunk


async def _small(reader: FormReader) -> str:
    data = b""
    async for chunk in reader.content():
        data = (data + chunk)[:_FIELD_MAX_BYTES]
    return data.decode("utf-8", "surrogateescape").strip()


def _refusal(what: str) -> Refusal:
    return Refusal(401, f"FormPost: {what}", {"Www-Authenticate": 'Swift realm="unknown"'})
