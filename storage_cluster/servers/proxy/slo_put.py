"""Writing a static large object: its segments are checked, then the manifest is stored.

Each segment's HEAD must agree with what the manifest says of it; what does not is listed in the answer. The manifest is
an object of its own with the large object's size and ETag in sysmeta, so that a HEAD need not read it, and its row in
the container's listing shows both.

Source: Swift, "Static Large Objects"; answers as observed in Swift 2.30.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator, Sequence

from storage_cluster.servers.http import ranges, values
from storage_cluster.servers.http.content_type import with_swift_bytes
from storage_cluster.servers.http.messages import PLAIN, Body, Call, Handler, Refusal, Reply
from storage_cluster.servers.http.values import is_true
from storage_cluster.servers.object.updates import OVERRIDE
from storage_cluster.servers.proxy.object_rules import settle_type
from storage_cluster.servers.proxy.segments import total_len
from storage_cluster.servers.proxy.slo_manifest import (
    MANIFEST_MAX_BYTES,
    TOO_SMALL,
    Asked,
    Entry,
    etag_of,
    parse_sent,
    parse_stored,
    stored_text,
)
from storage_cluster.servers.proxy.slo_report import Problem, Problems, beating

SLO_ETAG = "X-Object-Sysmeta-Slo-Etag"
SLO_SIZE = "X-Object-Sysmeta-Slo-Size"
_HEADS_AT_ONCE = 2

Head = Callable[[Asked], Awaitable[Reply]]


async def put(call: Call, inner: Handler, head: Head) -> Reply:
    """Store the manifest that the call brings. Raises: Refusal (400, 411, 413, 422)."""
    if not call.body.has_framing:
        raise Refusal(411, "Missing Content-Length header.", PLAIN)
    asked = parse_sent(await _read(call), "/" + "/".join(call.names[1:]))
    work = functools.partial(_store, call, inner, head, asked)
    return beating(call, work) if is_true(call.query.get("heartbeat")) else await work()


async def _store(call: Call, inner: Handler, head: Head, asked: Sequence[Asked]) -> Reply:
    """Check the segments and store the manifest. Raises: Refusal (400, 422)."""
    entries = await _check_segments(call, asked, head)
    etag = etag_of(entries)
    if call.headers.get("Etag", etag).strip('"') != etag:
        raise Refusal(422)
    reply = await inner(_manifest_put(call, entries, etag))
    if reply.is_success:
        reply.headers["Etag"] = f'"{etag}"'
    return reply


async def put_stored(call: Call, inner: Handler) -> Reply:
    """Store a manifest that is already in the form in which it is stored; its segments are not asked for."""
    entries = parse_stored(await call.body.read(MANIFEST_MAX_BYTES))
    etag = etag_of(entries)
    reply = await inner(_manifest_put(call, entries, etag))
    if reply.is_success:
        reply.headers["Etag"] = f'"{etag}"'
    return reply


async def _read(call: Call) -> bytes:
    try:
        return await call.body.read(MANIFEST_MAX_BYTES)
    except Refusal:
        raise Refusal(413, f"Manifest File > {MANIFEST_MAX_BYTES} bytes") from None


def _manifest_put(call: Call, entries: Sequence[Entry], etag: str) -> Call:
    text, size = stored_text(entries), total_len([entry.segment for entry in entries])
    manifest_etag = values.etag_of(text)
    listed = [call.headers[f"{OVERRIDE}Etag"]] if f"{OVERRIDE}Etag" in call.headers else []
    settle_type(call, call.names[2])
    for name in ("Transfer-Encoding", "X-Object-Manifest"):
        call.headers.popall(name, None)
    call.headers.update(
        {
            "Content-Type": with_swift_bytes(call.headers["Content-Type"], size),
            "Content-Length": str(len(text)),
            "Etag": manifest_etag,
            "X-Static-Large-Object": "True",
            SLO_ETAG: etag,
            SLO_SIZE: str(size),
            f"{OVERRIDE}Etag": "; ".join([manifest_etag, f"slo_etag={etag}", *listed]),
        }
    )
    call.headers.popall("X-Detect-Content-Type", None)
    call.body = Body.of(text)
    return call


async def _check_segments(call: Call, asked: Sequence[Asked], head: Head) -> list[Entry]:
    """What the segments are. Raises: Refusal (400) with a list of those that are not what the manifest says."""
    limit = asyncio.Semaphore(_HEADS_AT_ONCE)

    async def look(one: Asked) -> Reply:
        async with limit:
            return await head(one)

    firsts = {one.path: one for one in asked if one.data is None}
    replies = dict(zip(firsts, await asyncio.gather(*map(look, firsts.values())), strict=True))
    entries: list[Entry] = []
    problems: list[Problem] = []
    for at, one in enumerate(asked):
        if one.data is not None:
            entries.append(Entry({"data": one.data}))
        elif replies[one.path].status == 200:
            entries.append(Entry.from_head(one, replies[one.path].headers))
            problems += _mismatches(one, entries[-1], last=at == len(asked) - 1)
        else:
            problems.append((one.path, f"{replies[one.path].status} {replies[one.path].phrase}"))
    if problems:
        raise Problems(call, problems)
    return entries


def _mismatches(asked: Asked, found: Entry, *, last: bool) -> Iterator[Problem]:
    """What a segment is not that the manifest says, or what keeps it from being one."""
    size = found.fields["bytes"]
    if asked.range and ranges.parse_ranges(f"bytes={asked.range}", size) == []:
        yield asked.path, "Unsatisfiable Range"
    if size == 0 and not last:
        yield asked.path, TOO_SMALL.capitalize()
    if asked.size is not None and asked.size != size:
        yield asked.path, "Size Mismatch"
    if asked.etag is not None and asked.etag != found.fields["hash"]:
        yield asked.path, "Etag Mismatch"
