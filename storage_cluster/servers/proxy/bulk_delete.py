"""Bulk delete: `POST /v1/account?bulk-delete` with a line for each path to delete, percent-encoded.

Source: Swift, "Bulk Delete"; limits as in proxy-server.conf-sample.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator, Mapping
from urllib.parse import quote, unquote

from storage_cluster.servers.http import limits
from storage_cluster.servers.http.messages import Call, Handler, Refusal, Reply, reply_of
from storage_cluster.servers.proxy.bulk_report import Report, Work, nothing_more, reporting
from storage_cluster.servers.proxy.context import ProxyContext

DELETES_MAX = 10_000
FAILURES_MAX = 1000
_CONCURRENCY = 2
_LINE_MAX_BYTES = 2 * (limits.CONTAINER_NAME_MAX_LEN + limits.OBJECT_NAME_MAX_LEN + 2)


class BulkDelete:
    """Deletes what the request's body lists."""

    def __init__(self, _: ProxyContext) -> None:
        pass

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Answer a bulk delete; pass on anything else."""
        if "bulk-delete" not in call.query or call.method not in ("POST", "DELETE") or not call.names:
            return await inner(call)
        if not call.body.has_framing:
            raise Refusal(411)

        report = delete_report()

        async def prepare() -> Work:
            try:
                paths = [path async for path in _listed_paths(call)]
            except Refusal as refusal:
                report.stop(refusal.status, refusal.text or "")
                return nothing_more
            return functools.partial(delete_all, call, inner, paths, report)

        return await reporting(call, report, prepare)


def delete_report() -> Report:
    """The report of a deletion that has not begun."""
    return Report("delete", 200, {"Number Deleted": 0, "Number Not Found": 0})


async def delete_all(
    call: Call,
    inner: Handler,
    paths: list[str],
    report: Report,
    source: str = "BD",
    queries: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Delete `container[/object]` paths of the call's account, objects two at a time, and report on it.

    `queries`: what a path's DELETE asks for beside it: a version.
    """
    asked = queries or {}
    if not paths:
        report.stop(400, "Invalid bulk delete.")
    for group in _groups(paths):
        if report.status is not None:
            return
        statuses = await asyncio.gather(*(_delete(call, inner, path, source, asked.get(path)) for path in group))
        for path, status in zip(group, statuses, strict=True):
            _take_in(path, status, report)


def _groups(paths: list[str]) -> Iterator[list[str]]:
    """Paths to delete at once, in order; a container by itself, when the objects before it are gone."""
    group: list[str] = []
    for path in paths:
        is_container = "/" not in path.strip("/")
        if group and (is_container or len(group) == _CONCURRENCY):
            yield group
            group = []
        group.append(path)
        if is_container:
            yield group
            group = []
    if group:
        yield group


async def _delete(call: Call, inner: Handler, path: str, source: str, query: Mapping[str, str] | None) -> int:
    names = (call.names[0], *path.rstrip("/").split("/", 1))
    if not all(names) or any(character == "\0" or "\udc80" <= character <= "\udcff" for character in path):
        return 412
    kept = {name: call.headers[name] for name in ("X-Auth-Token", "X-Storage-Token") if name in call.headers}
    reply = await reply_of(inner, call.derive(method="DELETE", names=names, query=query, headers=kept, source=source))
    await reply.close()
    return reply.status


def _take_in(path: str, status: int, report: Report) -> None:
    if 200 <= status < 300:
        report.count("Number Deleted")
    elif status == 404:
        report.count("Number Not Found")
    else:
        report.errors.append((quote(path, errors="surrogateescape"), status))
        if len(report.errors) >= FAILURES_MAX:
            report.stop(400, "Max delete failures exceeded")


async def _listed_paths(call: Call) -> AsyncIterator[str]:
    """Decoded paths from the body. Raises: Refusal with the text that goes into the report."""
    rest, count = b"", 0
    async for chunk in call.body:
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LINE_MAX_BYTES:
            raise Refusal(400, "Invalid File Name")
        for path in filter(None, map(_decode, lines)):
            yield path
            count += 1
            if count > DELETES_MAX:
                raise Refusal(413, f"Maximum Bulk Deletes: {DELETES_MAX} per request")
    if last := _decode(rest):
        yield last


def _decode(line: bytes) -> str:
    if len(line) > _LINE_MAX_BYTES:
        raise Refusal(400, "Invalid File Name")
    return unquote(line.strip().decode("utf-8", "surrogateescape"), errors="surrogateescape").lstrip("/")
