"""Dynamic large objects: `X-Object-Manifest: container/prefix` makes an object stand for all that begin with a prefix.

What it holds is listed anew at each reading. Its ETag is the MD5 of the segments' ETags, in quotes, so conditions are
decided here. `multipart-manifest=get` shows the object itself.

Source: Swift, "Dynamic Large Objects"; answers as observed in Swift 2.30, which gives the whole to a client that asks
for several ranges.
"""

import functools
import json
from typing import Any
from urllib.parse import unquote

from multidict import CIMultiDict

from storage_cluster.servers.http import conditions, ranges
from storage_cluster.servers.http.listings import LIMIT_MAX
from storage_cluster.servers.http.messages import Call, Handler, Refusal, Reply, usual_text
from storage_cluster.servers.http.values import etag_of
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.object_names import container_and_object
from storage_cluster.servers.proxy.segments import Segment, open_reply, stream, total_len

_MANIFEST = "X-Object-Manifest"
_CONDITIONS = ("If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since")


class Dlo:
    """Returns the segments' contents for dynamic large objects."""

    def __init__(self, _: ProxyContext) -> None:
        pass

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Pass the call on; replace a manifest in the reply by its contents. Raises: Refusal (400) if it is invalid."""
        if len(call.names) != 3:
            return await inner(call)
        if call.method == "PUT" and _MANIFEST in call.headers:
            _check_manifest(call.headers[_MANIFEST])
        reply = await inner(call)
        if call.method not in ("GET", "HEAD") or _MANIFEST not in reply.headers:
            return reply
        if call.query.get("multipart-manifest") == "get":
            return reply
        return await _whole(call, inner, reply)


async def _whole(call: Call, inner: Handler, manifest: Reply) -> Reply:
    await manifest.close()
    if manifest.status != 200:  # the manifest's own answer to a range or condition: not what was asked about
        manifest = await inner(call.derive(method="HEAD", query=call.query, source="DLO"))
    names = container_and_object(manifest.headers.get(_MANIFEST, ""))
    if names is None:
        raise Refusal(409)
    segments = await _list_segments(call, inner, *names)
    asked = call.headers.get("Range")
    found = ranges.parse_ranges(asked, total_len(segments))
    if found == [] and "," not in (asked or ""):
        return _unsatisfiable(total_len(segments))
    headers = CIMultiDict(manifest.headers)
    headers["Etag"] = f'"{etag_of("".join(one.etag for one in segments).encode())}"'
    headers["Content-Length"] = str(total_len(segments))
    unwanted = conditions.check_conditions(
        {name: call.headers[name] for name in _CONDITIONS if name in call.headers}, headers
    )
    if unwanted is not None:
        return unwanted
    if call.method == "HEAD":
        return Reply(200, headers)
    source = functools.partial(stream, segments, functools.partial(_fetch, call, inner))
    one_part = asked if found is not None and len(found) == 1 else None
    return await open_reply(ranges.reply_with_ranges(200, headers, total_len(segments), one_part, source))


async def _fetch(call: Call, inner: Handler, segment: Segment, asked: str | None) -> Reply:
    names = (call.names[0], segment.container, segment.name)
    headers = {} if asked is None else {"Range": asked}
    return await inner(call.derive(method="GET", names=names, headers=headers, source="DLO"))


def _unsatisfiable(whole_len: int) -> Reply:
    headers = CIMultiDict({"Content-Range": f"bytes */{whole_len}", "Accept-Ranges": "bytes"})
    return Reply(416, headers, usual_text(416).encode())


async def _list_segments(call: Call, inner: Handler, container: str, prefix: str) -> list[Segment]:
    """The segments there are now. Raises: Refusal with the status of a listing that cannot be had."""
    segments: list[Segment] = []
    marker = ""
    while True:
        query = {"format": "json", "prefix": prefix, "marker": marker}
        listing = await inner(call.derive(method="GET", names=(call.names[0], container), query=query, source="DLO"))
        page = json.loads(await listing.read() or b"[]") if listing.is_success else []
        if not listing.is_success:
            asked = {name: listing.headers[name] for name in ("WWW-Authenticate",) if name in listing.headers}
            raise Refusal(listing.status, headers=asked)
        segments += [_segment(container, entry) for entry in page]
        if len(page) < LIMIT_MAX:
            return segments
        marker = page[-1]["name"]


def _segment(container: str, entry: dict[str, Any]) -> Segment:
    return Segment(length=entry["bytes"], container=container, name=entry["name"], etag=entry["hash"])


def _check_manifest(text: str) -> None:
    container, _, prefix = text.partition("/")
    if not container or not prefix or any(mark in unquote(text) for mark in "?&\0"):
        raise Refusal(400, "X-Object-Manifest must be in the format container/prefix")
