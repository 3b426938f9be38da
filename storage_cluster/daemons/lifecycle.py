"""The life cycles of S3's buckets: removes objects, versions, delete markers and uploads whose time is over.

1. The buckets that have rules are listed in a container of the gateway's; the hosts share them by the MD5 of the name.
2. Of each, all versions are listed, key by key, and the uploads under way.
3. A version that a rule covers and whose time is over is removed as S3 removes it; tags are read only if a rule asks.

Invariants: an object that was written anew since it was listed stays: the deletion is of the moment just after the one
that was listed, so anything newer outranks it. A version that is locked stays.
"""

import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from storage_cluster.daemons.daemon import DaemonContext, counts_text
from storage_cluster.daemons.internal import InternalClient
from storage_cluster.ring import path_hash
from storage_cluster.servers.http.messages import Call, Refusal
from storage_cluster.servers.http.times import new_transaction_id
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.objects import ONLY_AT
from storage_cluster.servers.proxy.pipeline import STORE_PIPELINE, pipeline
from storage_cluster.servers.proxy.server import Store
from storage_cluster.servers.proxy.version_copies import DELETED_TYPE
from storage_cluster.servers.s3 import versions
from storage_cluster.servers.s3.addressing import Address
from storage_cluster.servers.s3.buckets import INDEX_ACCOUNT, LISTING_LIMIT, Bucket, Buckets, list_all, list_page
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.lifecycle import Clock, Rule, Version, versions_in
from storage_cluster.servers.s3.lifecycle_operations import ENTRIES
from storage_cluster.servers.s3.metadata import object_tags
from storage_cluster.servers.s3.multipart import find_upload, remove_upload
from storage_cluster.servers.s3.multipart_layout import expire_parts, listed_upload, uploads_container
from storage_cluster.servers.s3.object_lock import is_locked
from storage_cluster.servers.s3.request import Request


class LifecycleDaemon:
    """Does what the rules of this host's share of the buckets say."""

    def __init__(self, context: DaemonContext) -> None:
        self._client = InternalClient.over(context.backend)
        self._proxy = ProxyContext.over(context.backend, info_cache_s=0.0)
        self._proxy.whole = pipeline([make(self._proxy) for make in STORE_PIPELINE], Store(self._proxy))
        self._buckets = Buckets(self._proxy.infos, remember_s=0.0)
        self._day_s = context.backend.topology.s3.lifecycle_day_s
        hosts = [host.name for host in context.backend.topology.hosts if host.devices]
        self._share = (hosts.index(context.host), len(hosts))

    async def run_once(self) -> str:
        """One pass over all buckets with rules."""
        counts: Counter[str] = Counter()
        async for name in self._client.names_in(INDEX_ACCOUNT, ENTRIES):
            if int(path_hash((name,), ""), 16) % self._share[1] == self._share[0]:
                try:
                    await self._process(name, counts)
                except Refusal:  # servers that do not answer: the next pass may fare better
                    counts["buckets left for the next pass"] += 1
        return counts_text(counts)

    async def _process(self, name: str, counts: Counter[str]) -> None:
        request = Request(Call("GET", (), transaction_id=new_transaction_id()), Address(name, ""), self._proxy.whole)
        entry = await request.ask_store("HEAD", (INDEX_ACCOUNT, ENTRIES, name))
        bucket = await self._find(request, name)
        rules = bucket.lifecycle.rules if bucket is not None else ()
        if bucket is None or not rules:
            only = {ONLY_AT: entry.headers["X-Backend-Timestamp"]} if entry.is_success else {}
            await request.ask_store("DELETE", (INDEX_ACCOUNT, ENTRIES, name), headers=only)
            return
        sweep = _Sweep(request, bucket, rules, Clock(time.time(), self._day_s), self._proxy, counts)
        await sweep.remove_versions()
        await sweep.remove_uploads()

    async def _find(self, request: Request, name: str) -> Bucket | None:
        try:
            return await self._buckets.find(request, name)
        except S3Error as error:
            if error.code != "NoSuchBucket":
                raise
            return None


class _Sweep:
    """One pass over one bucket."""

    def __init__(
        self,
        request: Request,
        bucket: Bucket,
        rules: tuple[Rule, ...],
        clock: Clock,
        proxy: ProxyContext,
        counts: Counter[str],
    ) -> None:
        self._request = request
        self._bucket = bucket
        self._rules = rules
        self._clock = clock
        self._proxy = proxy
        self._counts = counts

    async def remove_versions(self) -> None:
        """Remove the versions whose time is over. Raises: S3Error."""
        async for entries in self._entries_by_key():
            for version in reversed(versions_in(entries, DELETED_TYPE)):  # the oldest first
                due = [rule for rule in self._rules if rule.removes(version, self._clock)]
                if due:
                    await self._remove(version, due)

    async def remove_uploads(self) -> None:
        """Abort the uploads whose time is over. Raises: S3Error."""
        if all(rule.abort_days is None for rule in self._rules):
            return
        for entry in await list_all(self._request, uploads_container(self._bucket), {}):
            key, upload_id, _ = listed_upload(entry)
            begun_s = float(upload_id)
            if any(rule.covers(key, 0) and self._clock.is_over(begun_s, rule.abort_days) for rule in self._rules):
                with contextlib.suppress(S3Error):  # completed or aborted meanwhile
                    await remove_upload(
                        self._request, self._bucket, key, await find_upload(self._request, self._bucket, key, upload_id)
                    )
                    self._counts["uploads aborted"] += 1

    async def _entries_by_key(self) -> AsyncIterator[list[dict[str, Any]]]:
        """The entries of the listing, those of one key together."""
        has_versions = self._bucket.versioning.status is not None
        query = {"limit": str(LISTING_LIMIT)} | ({"versions": "true"} if has_versions else {})
        group: list[dict[str, Any]] = []
        while True:
            page = await list_page(self._request, self._bucket.names, query)
            for entry in page:
                if group and group[0]["name"] != entry["name"]:
                    yield group
                    group = []
                group.append(entry)
            if len(page) < LISTING_LIMIT:
                break
            query |= {"marker": page[-1]["name"]}
            query |= {"version_marker": page[-1]["version_id"]} if has_versions else {}
        if group:
            yield group

    async def _remove(self, version: Version, due: list[Rule]) -> None:
        shown_id = None if version.id is None else versions.shown_id(self._bucket, version.id)
        names = self._bucket.object_names(version.key)
        if shown_id is not None and not (shown_id == versions.NULL and version.superseded_s is None):
            names = await versions.version_names(self._request, self._bucket, version.key, shown_id)
        head = await self._request.ask_store("HEAD", names)
        tags = object_tags(head.headers)
        if not any(rule.has_tags_of(tags) for rule in due):
            return
        if version.superseded_s is None and not version.is_marker:
            await self._expire(version.key, head.headers.get("X-Backend-Timestamp"), has_versions=shown_id is not None)
        elif shown_id is not None and not is_locked(head.headers, may_bypass=False):
            await versions.delete_version(self._request, self._bucket, version.key, shown_id)
            self._counts["delete markers removed" if version.is_marker else "versions removed"] += 1

    async def _expire(self, key: str, changed_at: str | None, *, has_versions: bool) -> None:
        """Delete a current object, unless it has changed since that moment. Raises: S3Error."""
        if has_versions:
            await versions.delete_current(self._request, self._bucket, key, self._proxy.clock)
            self._counts["objects expired"] += 1
        elif changed_at is not None:
            names, only = self._bucket.object_names(key), {ONLY_AT: changed_at}
            reply = await self._request.ask_store("DELETE", names, headers=only)
            await expire_parts(self._request, self._bucket, reply)
            self._counts["objects expired"] += reply.is_success
