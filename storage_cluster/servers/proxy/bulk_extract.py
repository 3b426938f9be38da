"""Bulk upload: `PUT /v1/account[/container[/prefix]]?extract-archive=tar|tar.gz|tar.bz2` makes an object of each file.

The archive is spooled to a temporary file first, since unpacking reads it without waiting; files come out of it one
after the other, and containers are made as they are met.

Source: Swift, "Extract Archive"; limits as in proxy-server.conf-sample, messages as Swift 2.30.1 gives them.
"""

import asyncio
import contextlib
import functools
import tarfile
import tempfile
import zlib
from collections.abc import AsyncIterator
from typing import IO
from urllib.parse import quote

from storage_cluster.servers.http.messages import Body, Call, Handler, Refusal, Reply, reply_of
from storage_cluster.servers.proxy.bulk_report import Report, Work, reporting
from storage_cluster.servers.proxy.context import ProxyContext

CONTAINERS_MAX = 10_000
FAILURES_MAX = 1000
_CHUNK_BYTES = 65_536
_COMPRESSIONS = {"tar": "", "tar.gz": "gz", "tar.bz2": "bz2"}
_BROKEN = (tarfile.TarError, EOFError, OSError, zlib.error)


class BulkExtract:
    """Unpacks archives."""

    def __init__(self, _: ProxyContext) -> None:
        pass

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Answer a bulk upload; pass on anything else."""
        form = call.query.get("extract-archive")
        if form is None or call.method != "PUT" or not call.names:
            return await inner(call)
        if form.lower() not in _COMPRESSIONS:
            raise Refusal(400, "Unsupported archive format")
        if not call.body.has_framing:
            raise Refusal(411)
        report = Report("extract", 201, {"Number Files Created": 0})
        extraction = _Extraction(call, inner, report)
        with contextlib.ExitStack() as stack:
            spool = stack.enter_context(tempfile.TemporaryFile())

            async def prepare() -> Work:
                async for chunk in call.body:
                    await asyncio.to_thread(spool.write, chunk)
                spool.seek(0)
                return functools.partial(extraction.run, spool, _COMPRESSIONS[form.lower()])

            reply = await reporting(call, report, prepare)
            reply.on_close = stack.pop_all().close
        return reply


class _Extraction:
    """One archive being unpacked."""

    def __init__(self, call: Call, inner: Handler, report: Report) -> None:
        self._call = call
        self._inner = inner
        self._report = report
        self._containers: set[str] = set()

    async def run(self, spool: IO[bytes], compression: str) -> None:
        try:
            with tarfile.open(fileobj=spool, mode=f"r|{compression}") as archive:  # type: ignore[call-overload]
                await self._extract(archive)
        except _BROKEN as error:
            self._report.stop(400, f"Invalid Tar File: {error}")

    async def _extract(self, archive: tarfile.TarFile) -> None:
        while (member := await asyncio.to_thread(archive.next)) is not None:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                await self._put_file(member, content)
            if self._report.status is not None:
                return
        if not self._report.errors and not self._report.counts["Number Files Created"]:
            self._report.stop(400, "Invalid Tar File: No Valid Files")

    async def _put_file(self, member: tarfile.TarInfo, content: IO[bytes]) -> None:
        names = self._destination(member.name)
        if len(names) != 3:
            return  # a file that belongs to no container
        await self._make_container(names)
        headers = {"Content-Length": str(member.size)} | _metadata_of(member)
        status = await self._ask("PUT", names, headers, Body(_chunks(content), member.size))
        if 200 <= status < 300:
            self._report.count("Number Files Created")
        else:
            self._note_failure("/".join(names[1:]), status)

    def _destination(self, member_name: str) -> tuple[str, ...]:
        path = "/".join([*self._call.names[1:], member_name.removeprefix("./").lstrip("/")])
        return (self._call.names[0], *filter(None, path.split("/", 1)))

    async def _make_container(self, names: tuple[str, ...]) -> None:
        if names[1] in self._containers:
            return
        self._containers.add(names[1])
        if len(self._containers) > CONTAINERS_MAX:
            self._report.stop(400, f"More than {CONTAINERS_MAX} containers to create from tar.")
            return
        status = await self._ask("HEAD", names[:2], {}, Body())
        if status == 404:
            status = await self._ask("PUT", names[:2], {}, Body())
        if not 200 <= status < 300:
            self._note_failure("/v1/" + "/".join(names[:2]), status)

    async def _ask(self, method: str, names: tuple[str, ...], headers: dict[str, str], body: Body) -> int:
        given = self._call.headers
        kept = {name: given[name] for name in ("X-Auth-Token", "X-Storage-Token") if name in given}
        derived = self._call.derive(method=method, names=names, headers=kept | headers, body=body, source="EA")
        reply = await reply_of(self._inner, derived)
        await reply.close()
        return reply.status

    def _note_failure(self, path: str, status: int) -> None:
        if status == 401:
            self._report.stop(401)
            return
        self._report.errors.append((quote(path), status))
        if len(self._report.errors) >= FAILURES_MAX:
            self._report.stop(400, "Max failures exceeded")


def _metadata_of(member: tarfile.TarInfo) -> dict[str, str]:
    """What extended headers say about a file: `user.mime_type`, `user.meta.*`."""
    headers = {}
    for key, value in member.pax_headers.items():
        name = key.removeprefix("SCHILY.xattr.").removeprefix("LIBARCHIVE.xattr.")
        if name == "user.mime_type":
            headers["Content-Type"] = value
        elif name.startswith("user.meta."):
            headers[f"X-Object-Meta-{name.removeprefix('user.meta.')}"] = value
    return headers


async def _chunks(content: IO[bytes]) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(content.read, _CHUNK_BYTES):
        yield chunk
