"""Buckets: containers of the object store, found by name alone.

A container belongs to an account, and two accounts may have containers of one name; bucket names are unique. So an
index of the gateway's own says in which account a bucket is, and who made it:

    /.s3/buckets/BUCKET          X-Object-Sysmeta-S3-Account: AUTH_test
    /.s3/owners/USER/BUCKET      for listing a user's buckets; its time is the bucket's creation

A container that was made through Swift is not in the index. It is the bucket of that name for users of its account, and
belongs to whoever administers that account.

What is configured of a bucket is sysmeta of its container: owner, access control list, policy, CORS rules, tags, and
the times at which versioning was switched on and off. Lookups are remembered for a moment, as the proxy does it.
"""

import collections
import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from storage_cluster.servers.proxy.infos import ContainerInfo, Infos
from storage_cluster.servers.reservations.claims import PARTS_SUFFIX
from storage_cluster.servers.s3 import lifecycle, ownership
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.grants import ALL_USERS, Acl, Grant, private
from storage_cluster.servers.s3.lifecycle import Lifecycle
from storage_cluster.servers.s3.object_lock import SETTING, BucketLock
from storage_cluster.servers.s3.policy import Policy, parse_policy
from storage_cluster.servers.s3.public_access import PublicAccess
from storage_cluster.servers.s3.request import Request, check

INDEX_ACCOUNT = ".s3"
INDEX_CONTAINER = "buckets"
OWNERS_CONTAINER = "owners"
SYSMETA_MAX_BYTES = 8_000
_ACCOUNT = "X-Object-Sysmeta-S3-Account"
LISTING_LIMIT = 10_000
_REMEMBERED_MAX = 10_000


@dataclasses.dataclass(frozen=True)
class Versioning:
    """When versions were kept: switched on and off in turn at these moments (timestamps of the store)."""

    switched: tuple[str, ...] = ()

    @property
    def status(self) -> str | None:
        """As S3 calls it; None if versions were never switched on."""
        if not self.switched:
            return None
        return "Enabled" if len(self.switched) % 2 else "Suspended"

    @property
    def is_enabled(self) -> bool:
        """Whether a write makes a version now."""
        return self.status == "Enabled"

    def made_version(self, timestamp: str) -> bool:
        """Whether a write at that moment made a version with an id of its own; else its id is `null`."""
        return sum(moment <= timestamp for moment in self.switched) % 2 == 1


@dataclasses.dataclass(frozen=True)
class Bucket:
    """A bucket as a request finds it."""

    name: str
    account: str
    info: ContainerInfo
    acl: Acl
    public_objects: bool
    """Swift's access list lets everybody read its objects."""

    @property
    def names(self) -> tuple[str, str]:
        """Its container."""
        return self.account, self.name

    @property
    def owner(self) -> str:
        """Id of the user that it belongs to."""
        return self.acl.owner

    @property
    def policy(self) -> Policy | None:
        """Its policy."""
        text = self.setting("Policy")
        return None if text is None else parse_policy(text, self.name)

    @property
    def ownership(self) -> str:
        """Who owns its objects."""
        return self.setting("Ownership") or ownership.WRITER

    def in_force(self, acl: Acl) -> Acl:
        """What counts of an access list of it or of its objects."""
        return ownership.in_force(self.ownership, self.public_access.in_force(acl), self.owner)

    @property
    def public_access(self) -> PublicAccess:
        """What keeps it from becoming public."""
        return PublicAccess.from_text(self.setting("Public-Access"))

    @property
    def versioning(self) -> Versioning:
        """Whether its objects have versions."""
        text = self.setting("Versioning")
        return Versioning(tuple(text.split(",")) if text else ())

    @property
    def lock(self) -> BucketLock | None:
        """What is configured of locks of its objects; None if it has none."""
        return BucketLock.from_text(self.setting(SETTING))

    @property
    def lifecycle(self) -> Lifecycle:
        """The rules by which its objects are removed."""
        return Lifecycle.from_text(self.setting(lifecycle.SETTING))

    def setting(self, name: str) -> str | None:
        """What is configured under a name; None if nothing is."""
        text = self.info.sysmeta("Container", f"S3-{name}")
        return unquote(text) if text else None

    def json_setting(self, name: str) -> Any:
        """The same, where it is kept as JSON."""
        text = self.setting(name)
        return None if text is None else json.loads(text)

    def object_names(self, key: str) -> tuple[str, str, str]:
        """The store's names of an object."""
        return self.account, self.name, key


class Buckets:
    """Finds, makes, changes and lists buckets."""

    def __init__(self, infos: Infos, remember_s: float) -> None:
        self._infos = infos
        self._remember_s = remember_s
        self._accounts: collections.OrderedDict[str, tuple[str, float]] = collections.OrderedDict()

    async def find(self, request: Request, name: str) -> Bucket:
        """The bucket of that name. Raises: S3Error (NoSuchBucket)."""
        account = await self._account_of(request, name)
        own = request.requester.account if request.requester else None
        for candidate in dict.fromkeys(filter(None, (account, own))):
            info = await self._infos.container(request.call, candidate, name)
            if info.exists:
                return _bucket(request, name, candidate, info)
            if info.status != 404:
                raise S3Error("ServiceUnavailable")
        raise S3Error("NoSuchBucket", fields={"BucketName": name})

    async def create(
        self, request: Request, name: str, acl: Acl, settings: Mapping[str, str], more: Mapping[str, str]
    ) -> None:
        """Make a bucket for who asks. `more`: headers for the store.

        Raises: S3Error (BucketAlreadyExists, BucketAlreadyOwnedByYou).
        """
        assert request.requester is not None
        account = request.requester.account
        await self._require_index(request)
        await self._enter(request, name, account)
        found = await self._infos.container(request.call, account, name, fresh=True)
        if found.exists:
            bucket = _bucket(request, name, account, found)
            mine = bucket.owner == request.requester.id and bucket.acl == acl
            raise S3Error("BucketAlreadyOwnedByYou" if mine else "BucketAlreadyExists", fields={"BucketName": name})
        headers = _sysmeta("Acl", acl.text()) | dict(more)
        for setting, text in settings.items():
            headers |= _sysmeta(setting, quote(text))
        await check(await request.ask_store("PUT", (account, name), headers=headers))
        await check(await request.ask_store("PUT", _owner_entry(acl.owner, name), body=b""))

    async def delete(self, request: Request, bucket: Bucket) -> None:
        """Remove an empty bucket. Raises: S3Error (BucketNotEmpty)."""
        reply = await request.ask_store("DELETE", bucket.names)
        if reply.status == 409:
            raise S3Error("BucketNotEmpty", fields={"BucketName": bucket.name})
        await check(reply, "NoSuchBucket")
        self._accounts.pop(bucket.name, None)
        await request.ask_store("DELETE", _owner_entry(bucket.owner, bucket.name))
        await request.ask_store("DELETE", (INDEX_ACCOUNT, INDEX_CONTAINER, bucket.name))

    async def used_bytes(self, request: Request, bucket: Bucket) -> int:
        """What the store holds for a bucket now: its objects, and the parts of multipart uploads."""
        names = (bucket.names, parts_container(bucket))
        infos = [await self._infos.container(request.call, *each, fresh=True) for each in names]
        return sum(info.bytes_used for info in infos)

    async def configure(
        self,
        request: Request,
        bucket: Bucket,
        settings: Mapping[str, str | None],
        more: Mapping[str, str] | None = None,
    ) -> None:
        """Change settings of a bucket; None removes one. `more`: headers for the store. Raises: S3Error."""
        headers: dict[str, str] = dict(more or {})
        for name, text in settings.items():
            headers |= _sysmeta(name, "" if text is None else quote(text))
        if any(len(value) > SYSMETA_MAX_BYTES for value in headers.values()):
            raise S3Error("EntityTooLarge", f"A bucket's setting may have {SYSMETA_MAX_BYTES} bytes, escaped.")
        await check(await request.ask_store("POST", bucket.names, headers=headers), "NoSuchBucket")

    async def set_acl(self, request: Request, bucket: Bucket, acl: Acl) -> None:
        """Change a bucket's access control list."""
        await self.configure(request, bucket, {"Acl": unquote(acl.text())})

    async def of_requester(self, request: Request) -> list[tuple[str, str]]:
        """Name and creation (ISO date) of each bucket of who asks, by name."""
        requester = request.requester
        assert requester is not None
        names = (INDEX_ACCOUNT, OWNERS_CONTAINER)
        prefix = f"{requester.user.account}:"
        entries = await list_all(request, names, {"prefix": prefix})
        owned = {entry["name"]: entry["last_modified"] for entry in entries}
        mine = {name.partition("/")[2]: made for name, made in owned.items() if name.startswith(f"{requester.id}/")}
        if requester.administers(requester.account):
            others = {name.partition("/")[2] for name in owned}
            for entry in await list_all(request, (requester.account,), {}):
                if entry["name"] not in others and not entry["name"].endswith(PARTS_SUFFIX):
                    mine.setdefault(entry["name"], entry["last_modified"])
        return sorted((name, made) for name, made in mine.items() if "\0" not in name)

    async def _account_of(self, request: Request, name: str) -> str | None:
        known = self._accounts.get(name)
        if known is not None and known[1] > time.monotonic():
            return known[0]
        reply = await request.ask_store("HEAD", (INDEX_ACCOUNT, INDEX_CONTAINER, name))
        if reply.status not in (200, 404):
            raise S3Error("ServiceUnavailable")
        account = reply.headers.get(_ACCOUNT) if reply.status == 200 else None
        if account is not None:
            self._remember(name, account)
        return account

    def _remember(self, name: str, account: str) -> None:
        self._accounts[name] = account, time.monotonic() + self._remember_s
        self._accounts.move_to_end(name)
        if len(self._accounts) > _REMEMBERED_MAX:
            self._accounts.popitem(last=False)

    async def _enter(self, request: Request, name: str, account: str) -> None:
        """Enter a name into the index, unless it is another account's. Raises: S3Error (BucketAlreadyExists)."""
        names = (INDEX_ACCOUNT, INDEX_CONTAINER, name)
        headers = {_ACCOUNT: account, "If-None-Match": "*", "Content-Type": "application/octet-stream"}
        reply = await request.ask_store("PUT", names, headers=headers, body=b"")
        if reply.status != 412:
            await check(reply)
            return
        self._accounts.pop(name, None)
        holder = await self._account_of(request, name)
        if holder in (None, account):
            return
        assert holder is not None
        info = await self._infos.container(request.call, holder, name, fresh=True)
        if info.status != 404:
            raise S3Error("BucketAlreadyExists", fields={"BucketName": name})
        del headers["If-None-Match"]  # its making or removal was cut off
        await check(await request.ask_store("PUT", names, headers=headers, body=b""))
        self._accounts.pop(name, None)

    async def _require_index(self, request: Request) -> None:
        for container in (INDEX_CONTAINER, OWNERS_CONTAINER):
            info = await self._infos.container(request.call, INDEX_ACCOUNT, container)
            if not info.exists:
                await check(await request.ask_store("PUT", (INDEX_ACCOUNT, container)))


async def list_all(request: Request, names: Sequence[str], query: Mapping[str, str]) -> list[dict[str, Any]]:
    """All entries of a listing of the store's; none if it is not there."""
    entries: list[dict[str, Any]] = []
    marker = ""
    while True:
        page = await list_page(request, names, {**query, "limit": str(LISTING_LIMIT), "marker": marker})
        entries += page
        if len(page) < LISTING_LIMIT:
            return entries
        marker = str(page[-1].get("name") or page[-1].get("subdir"))


async def list_page(request: Request, names: Sequence[str], query: Mapping[str, str]) -> list[dict[str, Any]]:
    """One page of a listing of the store's; empty if it is not there. Raises: S3Error."""
    reply = await request.ask_store("GET", tuple(names), query=query)
    if reply.status == 404:
        await reply.close()
        return []
    await check(reply)
    listed: list[dict[str, Any]] = json.loads(await reply.read() or b"[]")
    return listed


def _bucket(request: Request, name: str, account: str, info: ContainerInfo) -> Bucket:
    kept = info.sysmeta("Container", "S3-Acl")
    if kept:
        return Bucket(name, account, info, Acl.from_text(kept), public_objects=False)
    requester = request.requester
    owner = requester.id if requester and requester.administers(account) else account.partition("_")[2]
    listed = [one.strip() for one in (info.read_acl or "").split(",")]
    readers = (Grant(ALL_USERS, "READ"),) if ".rlistings" in listed else ()
    acl = Acl(owner, (*private(owner).grants, *readers))
    return Bucket(name, account, info, acl, public_objects=".r:*" in listed)


def _sysmeta(name: str, text: str) -> dict[str, str]:
    return {f"X-Container-Sysmeta-S3-{name}": text}


def _owner_entry(owner: str, bucket: str) -> tuple[str, str, str]:
    return INDEX_ACCOUNT, OWNERS_CONTAINER, f"{owner}/{bucket}"


def parts_container(bucket: Bucket) -> tuple[str, str]:
    """The container that holds the parts of a bucket's multipart uploads."""
    return bucket.account, bucket.name + PARTS_SUFFIX
