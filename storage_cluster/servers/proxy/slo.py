"""Static large objects: a manifest names the segments, with sizes and ETags; reading it returns their contents.

`PUT ?multipart-manifest=put` writes one (`slo_put`); GET and HEAD show the whole, or with `multipart-manifest=get` the
manifest (`format=raw`: as a client would send it); `DELETE ?multipart-manifest=delete` deletes the segments as well. A
segment may be a large object itself, ten levels deep.

Source: Swift, "Static Large Objects"; answers as observed in Swift 2.30.
"""

import functools
from collections.abc import AsyncIterator, Sequence

from multidict import CIMultiDict

from storage_cluster.servers.http import conditions, ranges, values
from storage_cluster.servers.http.content_type import split_swift_bytes
from storage_cluster.servers.http.messages import Call, Handler, Refusal, Reply, reply_of
from storage_cluster.servers.http.values import is_true
from storage_cluster.servers.proxy import slo_put
from storage_cluster.servers.proxy.bulk_delete import delete_all, delete_report
from storage_cluster.servers.proxy.bulk_report import Work, reporting
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.object_names import quote_path
from storage_cluster.servers.proxy.segments import Segment, open_reply, stream, total_len
from storage_cluster.servers.proxy.slo_manifest import Asked, Entry, parse_stored, sent_text
from storage_cluster.servers.proxy.slo_put import SLO_ETAG, SLO_SIZE

LEVELS_MAX = 10
_FLAG = "X-Static-Large-Object"
_LEVEL = "X-Backend-Slo-Level"
MANIFEST_IS_STORED = "X-Backend-Slo-Manifest-Is-Stored"
"""With a PUT that a feature makes: the body is a manifest as it is stored, of segments that the feature knows."""
_RESERVED = (
    "X-Static-Large-Object is a reserved header. "
    "To create a static large object add query param multipart-manifest=put."
)


class Slo:
    """Writes, shows and deletes such objects."""

    def __init__(self, _: ProxyContext) -> None:
        pass

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Handle requests about large objects; pass on all others. Raises: Refusal."""
        if len(call.names) != 3:
            return await inner(call)
        asked = call.query.get("multipart-manifest")
        if call.method == "PUT" and is_true(call.headers.get(MANIFEST_IS_STORED)):
            return await slo_put.put_stored(call, inner)
        if call.method == "PUT" and asked == "put":
            return await slo_put.put(call, inner, functools.partial(self._head, call, inner))
        if call.method == "DELETE" and asked == "delete":
            return await _deletion(call, inner)
        if call.method == "PUT" and is_true(call.headers.get(_FLAG)):
            raise Refusal(400, _RESERVED)
        call.headers.popall(_FLAG, None)
        if call.method not in ("GET", "HEAD"):
            return await inner(call)
        return await (_manifest(call, inner) if asked == "get" else self._show(call, inner))

    async def _head(self, call: Call, inner: Handler, segment: Asked) -> Reply:
        if "\0" in segment.path:
            return Refusal(412).reply()  # a name of the servers' own
        names = (call.names[0], *segment.names)
        head = call.derive(method="HEAD", names=names, source="SLO")
        return await reply_of(functools.partial(self, inner=inner), head)

    async def _show(self, call: Call, inner: Handler) -> Reply:
        """An object, a large one as what it stands for."""
        etag_is_at = call.headers.get(conditions.ETAG_IS_AT)
        call.headers[conditions.ETAG_IS_AT] = f"{etag_is_at},{SLO_ETAG}" if etag_is_at else SLO_ETAG
        reply = await inner(call)
        if not is_true(reply.headers.get(_FLAG)) or SLO_ETAG not in reply.headers:
            return reply
        headers = _headers(reply)
        if reply.status in (304, 412):
            reply.headers = headers
            return reply
        if call.method == "HEAD":
            headers["Content-Length"] = reply.headers[SLO_SIZE]
            return Reply(200, headers)
        if reply.status != 200:  # a part of the manifest, or a refusal of it: not what was asked about
            await reply.close()
            reply = await inner(_manifest_get(call))
            headers = _headers(reply)
        if not reply.is_success:
            return reply
        segments = [entry.segment for entry in parse_stored(await reply.read())]
        return await self._in_part(call, inner, headers, segments)

    async def _in_part(
        self, call: Call, inner: Handler, headers: CIMultiDict[str], segments: Sequence[Segment]
    ) -> Reply:
        level = int(call.headers.get(_LEVEL, "0"))
        if level >= LEVELS_MAX:
            raise Refusal(409, "Max recursion depth exceeded")
        source = functools.partial(stream, segments, functools.partial(self._fetch, call, inner, level))
        asked, whole_len = call.headers.get("Range"), total_len(segments)
        headers.popall("Content-Range", None)
        found = ranges.reply_with_ranges(200, headers, whole_len, asked, source)
        if isinstance(found.body, bytes):
            return found
        return await open_reply(found, 1 if found.status == 200 or ranges.is_single(found.headers) else 2)

    async def _fetch(self, call: Call, inner: Handler, level: int, segment: Segment, asked: str | None) -> Reply:
        get = call.derive(
            method="GET",
            names=(call.names[0], segment.container, segment.name),
            query={} if segment.nested else {"multipart-manifest": "get"},
            headers={_LEVEL: str(level + 1)} | ({} if asked is None else {"Range": asked}),
            source="SLO",
        )
        return await (reply_of(functools.partial(self, inner=inner), get) if segment.nested else inner(get))


async def _manifest(call: Call, inner: Handler) -> Reply:
    """The manifest itself, as it is stored, or as a client would send it."""
    reply = await inner(call)
    if not is_true(reply.headers.get(_FLAG)):
        return reply
    if call.query.get("format") != "raw":
        reply.headers["Content-Type"] = "application/json; charset=utf-8"
        return reply
    if call.method == "HEAD":
        reply = await inner(_manifest_get(call))
    if reply.status == 200:
        text = sent_text(parse_stored(await reply.read()))
        reply.headers["Etag"] = values.etag_of(text)
        reply.headers["Content-Length"] = str(len(text))
        reply.body = text
    return reply


def _manifest_get(call: Call) -> Call:
    """A call for the whole manifest of what a call is about."""
    query = {"multipart-manifest": "get"} | _version_query(call)
    return call.derive(method="GET", query=query, source="SLO")


def _version_query(call: Call) -> dict[str, str]:
    """The part of a query that names the object's version."""
    return {name: value for name, value in call.query.items() if name == "version-id"}


def _headers(reply: Reply) -> CIMultiDict[str]:
    """The manifest's headers as those of the whole."""
    headers = CIMultiDict(reply.headers)
    if SLO_ETAG in headers:
        headers["X-Manifest-Etag"] = headers["Etag"]
        headers["Etag"] = f'"{headers[SLO_ETAG]}"'
        headers["Content-Type"] = split_swift_bytes(headers.get("Content-Type", ""))[0]
    return headers


async def _deletion(call: Call, inner: Handler) -> Reply:
    report = delete_report()
    path, version = "/".join(call.names[1:]), _version_query(call)

    async def work() -> None:
        try:
            paths = [one async for one in _paths(call, inner, call.names[1], call.names[2], 0)]
            asked = {paths[-1]: version} if version else {}
        except Refusal as refusal:
            if refusal.status == 404:
                report.count("Number Not Found")
            else:
                report.errors.append((f"/{quote_path(path)}", refusal.text or refusal.status))
            return
        await delete_all(call, inner, paths, report, "SLO", asked)

    async def prepare() -> Work:
        return work

    return await reporting(call, report, prepare)


async def _paths(call: Call, inner: Handler, container: str, name: str, level: int) -> AsyncIterator[str]:
    """`container/name` of all segments, then of the object itself. Raises: Refusal if it is no large object."""
    names = (call.names[0], container, name)
    query = {"multipart-manifest": "get"} | (_version_query(call) if level == 0 else {})
    reply = await inner(call.derive(method="GET", names=names, query=query, source="SLO"))
    if not reply.is_success:
        raise Refusal(reply.status)
    if not is_true(reply.headers.get(_FLAG)):
        await reply.close()
        raise Refusal(400, "Not an SLO manifest")
    if level > LEVELS_MAX:
        raise Refusal(400, "Max recursion depth exceeded")
    for entry in parse_stored(await reply.read()):
        async for path in _segment_paths(call, inner, entry, level):
            yield path
    yield f"{container}/{name}"


async def _segment_paths(call: Call, inner: Handler, entry: Entry, level: int) -> AsyncIterator[str]:
    segment = entry.segment
    if segment.nested:
        async for path in _paths(call, inner, segment.container, segment.name, level + 1):
            yield path
    elif segment.data is None:
        yield f"{segment.container}/{segment.name}"
