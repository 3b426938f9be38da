"""Listings as text, JSON or XML: inside the pipeline they are JSON, here they become what the client asked for.

The form is the query's `format`, else the best match of `Accept`. An empty listing as text is 204.

Source: Swift API, "Serialized response formats"; the documents are those of Swift 2.30.1.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from storage_cluster.servers.http.messages import Call, Handler, Refusal, Reply
from storage_cluster.servers.proxy.accept import best_match
from storage_cluster.servers.proxy.context import ProxyContext

_BY_FORMAT = {"plain": "text/plain", "json": "application/json", "xml": "application/xml"}
_OFFERED = ("text/plain", "application/json", "application/xml", "text/xml")
_CONTAINER_FIELDS = ("name", "count", "bytes", "last_modified")
_OBJECT_FIELDS = ("name", "hash", "bytes", "content_type", "last_modified")


class ListingFormats:
    """Turns JSON listings into the client's form."""

    def __init__(self, _: ProxyContext) -> None:
        pass

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Pass the call on, and rewrite a listing. Raises: Refusal (400, 406) for an Accept that cannot be met."""
        if call.method not in ("GET", "HEAD") or len(call.names) not in (1, 2):
            return await inner(call)
        media_type = wanted_type(call)
        reply = await inner(call)
        if reply.is_success and "format" not in call.query:
            reply.headers["Vary"] = ", ".join(filter(None, ("Accept", reply.headers.get("Vary"))))
        if not reply.is_success or not _is_listing(reply):
            return reply
        reply.headers["Content-Type"] = f"{media_type}; charset=utf-8"
        if call.method == "GET":
            reply.body = _document(media_type, call, json.loads(await reply.read() or b"[]"))
            reply.status = 200 if reply.body else 204
            reply.headers["Content-Length"] = str(len(reply.body))
        return reply


def wanted_type(call: Call) -> str:
    """The media type a client wants a listing in. Raises: Refusal (400, 406)."""
    if "versions" in call.query:
        if call.query.get("format", "json").lower() != "json":
            raise Refusal(406)
        return "application/json"
    if "format" in call.query:
        return _BY_FORMAT.get(call.query["format"].lower(), "text/plain")
    media_type = best_match(call.headers.get("Accept", ""), _OFFERED)
    if media_type is None:
        raise Refusal(406)
    return media_type


def _is_listing(reply: Reply) -> bool:
    return reply.headers.get("Content-Type", "").startswith("application/json")


def _document(media_type: str, call: Call, entries: Sequence[Mapping[str, Any]]) -> bytes:
    if media_type == "application/json":
        return json.dumps(entries).encode()
    if media_type == "text/plain":
        return "".join(f"{entry.get('name', entry.get('subdir'))}\n" for entry in entries).encode()
    xml = _account_xml if len(call.names) == 1 else _container_xml
    return ('<?xml version="1.0" encoding="UTF-8"?>\n' + xml(call.names[-1], entries)).encode()


def _account_xml(name: str, entries: Sequence[Mapping[str, Any]]) -> str:
    lines = [f"<account name={quoteattr(name)}>"]
    for entry in entries:
        if "subdir" in entry:
            lines.append(f"<subdir name={quoteattr(entry['subdir'])} />")
        else:
            lines.append(f"<container>{_fields(entry, _CONTAINER_FIELDS)}</container>")
    return "\n".join([*lines, "</account>"])


def _container_xml(name: str, entries: Sequence[Mapping[str, Any]]) -> str:
    if not entries:
        return f"<container name={quoteattr(name)} />"
    parts = [f"<container name={quoteattr(name)}>"]
    for entry in entries:
        if "subdir" in entry:
            folder = entry["subdir"]
            parts.append(f"<subdir name={quoteattr(folder)}><name>{escape(folder)}</name></subdir>")
        else:
            parts.append(f"<object>{_fields(entry, _OBJECT_FIELDS)}</object>")
    return "".join([*parts, "</container>"])


def _fields(entry: Mapping[str, Any], names: Sequence[str]) -> str:
    return "".join(f"<{name}>{escape(str(entry[name]))}</{name}>" for name in names if name in entry)
