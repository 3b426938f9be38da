"""The routing proxy: an S3 server in front of two S3 stores.

    client ─ S3 ─▶ routing proxy: who sent it ─▶ which operation ─▶ which store ─ S3, signed anew ─▶ store
                                                                     └─ by size, or where the object is

| what | where |
|---|---|
| PUT | the store for small or for large objects, by its size; a conditional one where the object is, if it is there |
| copies | where the source is, so no bytes pass through here |
| uploads in parts | the store for large objects |
| GET, HEAD, DELETE, tags, access lists | where the object is |
| listings | both, merged |
| buckets, what is configured of them | both |

Not built, answered with `NotImplemented`: versions, uploads by forms, copies of a small object's bytes into a part.

A store that does not answer is named in the error. A reply has the request id of the store that answered, and the
header `Server: routing-proxy`.

Source: Amazon S3 API reference; 内田, 亀井: I/O 情報を利用したオブジェクトストレージ向けの高速化プロキシの開発 (§3.2).
"""

import asyncio
import dataclasses
import functools
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from storage_cluster.s3.signatures import Credentials
from storage_cluster.servers.disks.devices import Devices
from storage_cluster.servers.http.connections import Connections
from storage_cluster.servers.http.messages import Body, BrokenOff, Call, Reply
from storage_cluster.servers.routing.deletions import delete_each
from storage_cluster.servers.routing.endpoint import PATIENCE_S, Endpoint, Outgoing
from storage_cluster.servers.routing.forwarding import outgoing_request, upload_size
from storage_cluster.servers.routing.listings import merged_listing
from storage_cluster.servers.routing.locations import (
    LARGE,
    SMALL,
    STORES,
    DatabaseLocations,
    Key,
    Locations,
    MemoryLocations,
)
from storage_cluster.servers.routing.placement import Placement
from storage_cluster.servers.routing.recovery import Recovery
from storage_cluster.servers.s3.addressing import Address, address_of
from storage_cluster.servers.s3.authentication import Authenticator, Signed
from storage_cluster.servers.s3.documents import DOCUMENT_MAX_BYTES
from storage_cluster.servers.s3.errors import S3Error, reply_or_error
from storage_cluster.servers.s3.objects import source_named
from storage_cluster.servers.s3.request import Request, user_id_of
from storage_cluster.servers.s3.server import complete_reply, subresource_of
from storage_cluster.topology import Topology, endpoint_of

SERVER_NAME = "routing-proxy"
START_PATIENCE_S = 10.0
"""How long a request waits for what the stores hold to be read."""
_CONDITIONS = ("If-Match", "If-None-Match")
_SETTINGS = ("acl", "cors", "ownershipControls", "policy", "publicAccessBlock", "tagging")


@dataclasses.dataclass(frozen=True)
class Routed:
    """A client's request on its way."""

    request: Request
    signed: Signed
    outgoing: Outgoing

    @property
    def key(self) -> Key:
        """Bucket and key."""
        return self.request.address.bucket, self.request.address.key

    def with_document(self, document: bytes) -> Outgoing:
        """What goes out, with a body that was read already."""
        return dataclasses.replace(self.outgoing, body=Body.of(document))


Operate = Callable[["RoutingServer", Routed], Awaitable[Reply]]


class RoutingServer:
    """Answers requests to S3 with the help of two stores."""

    def __init__(self, topology: Topology, locations: Locations, say: Callable[[str], None]) -> None:
        """It begins to read the stores at once. `say` is for what the operator of the proxy may want to know."""
        options = topology.routing
        self._authenticator = Authenticator(topology.users)
        self._options = options
        self._connections = Connections(are_kept=options.connections == "pooled", patience_s=PATIENCE_S)
        self.endpoints = {store: self._endpoint(topology, store) for store in STORES}
        self.placement = Placement(options, locations)
        self.recovery = Recovery(self.endpoints, self.placement, _users(topology), say)
        self._reading = asyncio.create_task(self.recovery.run())

    def _endpoint(self, topology: Topology, store: str) -> Endpoint:
        options, address = topology.routing, endpoint_of(topology, store)
        return Endpoint(store, address, self._connections, options.region, reads_whole=options.body == "whole")

    async def close(self) -> None:
        """Stop reading the stores, and write what is not written yet."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._connections.close()
        self.placement.locations.close()

    async def __call__(self, call: Call) -> Reply:
        """One request."""
        address = Address("", "")
        try:
            address = address_of(call.headers.get("Host", ""), call.path)
            reply = await reply_or_error(self._answer(call, address))
        except S3Error as error:
            reply = error.reply()
        call.transaction_id = reply.headers.get("x-amz-request-id", call.transaction_id)
        reply.headers["Server"] = SERVER_NAME
        return complete_reply(reply, address.resource, call.transaction_id)

    async def _answer(self, call: Call, address: Address) -> Reply:
        signed = self._authenticator.authenticate(call)
        request = Request(call, address, _no_store, signed.requester)
        about = "bucket" if address.bucket else "service"
        operate = OPERATIONS.get(("object" if address.key else about, call.method, subresource_of(call)))
        if operate is None or "versionId" in call.query:
            raise S3Error("NotImplemented")
        await self.recovery.wait(START_PATIENCE_S)
        return await operate(self, Routed(request, signed, outgoing_request(request, signed, self._options)))

    # of objects

    async def get_object(self, routed: Routed) -> Reply:
        """GET and HEAD, also of an object's tags and access list: where the object is.

        Where it is not there, it may have moved meanwhile, or have been put into the other store past this proxy.
        """
        first, second = self.placement.order(routed.key)
        reply = await self.endpoints[first].send(routed.outgoing)
        if reply.status != 404:
            return reply
        await reply.read()
        found = await self.endpoints[second].send(routed.outgoing)
        if found.status == 404:
            await found.close()
            return reply
        return found

    async def change_object(self, routed: Routed) -> Reply:
        """A change of an object's tags or access list."""
        document = await routed.request.read_document()
        async with self.placement.turn(routed.key):
            first, second = self.placement.order(routed.key)
            reply = await self.endpoints[first].send(routed.with_document(document))
            if reply.status != 404:
                return reply
            await reply.read()
            return await self.endpoints[second].send(routed.with_document(document))

    async def put_object(self, routed: Routed) -> Reply:
        """PUT: by size; with a condition where the object is, since only that store can judge it."""
        size_bytes = upload_size(routed.request, routed.signed)
        async with self.placement.turn(routed.key):
            store = self.placement.choose(size_bytes)
            if any(name in routed.request.headers for name in _CONDITIONS):
                store = self.placement.locations.find(routed.key) or store
            return await self._write(routed, store, size_bytes)

    async def copy_object(self, routed: Routed) -> Reply:
        """A copy: where its source is."""
        bucket, key, version_id = source_named(routed.request.headers)
        if version_id is not None:
            raise S3Error("NotImplemented")
        async with self.placement.turn(routed.key):
            first, second = self.placement.order((bucket, key))
            reply = await self._write(routed, first)
            return reply if reply.status != 404 else await self._write(routed, second)

    async def complete_upload(self, routed: Routed) -> Reply:
        """CompleteMultipartUpload."""
        document = await routed.request.read_document()
        async with self.placement.turn(routed.key):
            return await self._write(dataclasses.replace(routed, outgoing=routed.with_document(document)), LARGE)

    async def delete_object(self, routed: Routed) -> Reply:
        """DELETE: where the object is; if that is not known, in both."""
        async with self.placement.turn(routed.key):
            first, second = self.placement.order(routed.key)
            left = self.placement.leftovers.get(routed.key, set())
            is_known = self.placement.locations.find(routed.key) is not None and second not in left
            reply = await self.endpoints[first].send(routed.outgoing)
            if not reply.is_success:
                return reply
            if not is_known:
                await self._remove(routed, second)
            if self.placement.locations.find(routed.key) is not None:
                await self.placement.locations.forget(routed.key)
            self.placement.leftovers.pop(routed.key, None)
            return reply

    async def part(self, routed: Routed) -> Reply:
        """What is about an upload in parts."""
        return await self.endpoints[LARGE].send(routed.outgoing)

    async def copy_part(self, routed: Routed) -> Reply:
        """UploadPartCopy of an object that is in the same store as the parts are."""
        bucket, key, _ = source_named(routed.request.headers)
        if self.placement.locations.find((bucket, key)) == SMALL:
            raise S3Error("NotImplemented", "A part cannot be a copy of a small object: it is in another store.")
        return await self.part(routed)

    async def _write(self, routed: Routed, store: str, size_bytes: int | None = None) -> Reply:
        """Write an object to a store, note it, and remove what the other one has. Its turn is the caller's."""
        try:
            reply = await self.endpoints[store].send(routed.outgoing)
            answer = await reply.read()
        except (S3Error, BrokenOff):
            self.placement.suspect(routed.key, store)
            raise
        if not reply.is_success or b"<Error" in answer[:512]:
            return reply
        for other in await self.placement.note_write(routed.key, store, size_bytes):
            await self._remove(routed, other)
            self.placement.note_removal(routed.key, other)
        return reply

    async def _remove(self, routed: Routed, store: str) -> None:
        """Remove a copy. Raises: S3Error if that fails: the request that needs it is not answered with success then."""
        removal = Outgoing("DELETE", *routed.key, credentials=routed.outgoing.credentials)
        reply = await self.endpoints[store].send(removal)
        await reply.read()
        if not reply.is_success and reply.status != 404:
            raise S3Error(
                "ServiceUnavailable", f"The store for {store} objects does not remove the object ({reply.status})."
            )

    # of buckets

    async def list_buckets(self, routed: Routed) -> Reply:
        """Buckets are in both."""
        return await self.endpoints[SMALL].send(routed.outgoing)

    async def list_objects(self, routed: Routed) -> Reply:
        """A listing of both."""
        bucket = routed.request.address.bucket
        with self.placement.listing(bucket):
            return await merged_listing(
                self.endpoints, bucket, routed.request.query, routed.outgoing.credentials, self.placement.locations.find
            )

    async def create_bucket(self, routed: Routed) -> Reply:
        """In both; where one has it already, in the other."""
        replies = await self._send_to_both(routed)
        made = [reply for reply in replies if reply.is_success]
        failed = [reply for reply in replies if not reply.is_success and reply.status != 409]
        if made and routed.outgoing.credentials is not None:
            self.recovery.owners[routed.request.address.bucket] = routed.outgoing.credentials
        return (*failed, *made, *replies)[0]

    async def configure_bucket(self, routed: Routed) -> Reply:
        """A setting, in both."""
        replies = await self._send_to_both(routed)
        return next((reply for reply in replies if not reply.is_success), replies[0])

    async def delete_bucket(self, routed: Routed) -> Reply:
        """In both, once both are empty."""
        bucket, credentials = routed.request.address.bucket, routed.outgoing.credentials
        one = {"max-keys": "1"}
        page = await merged_listing(self.endpoints, bucket, one, credentials, self.placement.locations.find)
        if page.is_success and b"<Key>" in await page.read():
            raise S3Error("BucketNotEmpty", fields={"BucketName": bucket})
        replies = await self._send_to_both(routed)
        refused = next((reply for reply in replies if not reply.is_success and reply.status != 404), None)
        if refused is not None and any(reply.is_success for reply in replies):
            again = Outgoing("PUT", bucket, credentials=credentials)  # something was put there meanwhile
            await self._send_to_both(dataclasses.replace(routed, outgoing=again))
        return refused or replies[0]

    async def delete_objects(self, routed: Routed) -> Reply:
        """DeleteObjects."""

        async def delete(key: str) -> Reply:
            address = dataclasses.replace(routed.request.address, key=key)
            outgoing = Outgoing("DELETE", *routed.key[:1], key, credentials=routed.outgoing.credentials)
            return await self.delete_object(
                Routed(dataclasses.replace(routed.request, address=address), routed.signed, outgoing)
            )

        return await delete_each(routed.request, routed.signed, delete)

    async def _send_to_both(self, routed: Routed) -> list[Reply]:
        """The whole replies of both. Raises: S3Error."""
        document = await routed.outgoing.body.read(DOCUMENT_MAX_BYTES)
        replies = []
        for store in STORES:
            reply = await self.endpoints[store].send(routed.with_document(document))
            await reply.read()
            replies.append(reply)
        return replies


_S = RoutingServer
OPERATIONS: dict[tuple[str, str, str], Operate] = {
    ("service", "GET", ""): _S.list_buckets,
    ("bucket", "PUT", ""): _S.create_bucket,
    ("bucket", "DELETE", ""): _S.delete_bucket,
    ("bucket", "GET", ""): _S.list_objects,
    ("bucket", "GET", "list-type=2"): _S.list_objects,
    ("bucket", "GET", "uploads"): _S.part,
    ("bucket", "POST", "delete"): _S.delete_objects,
    **{
        ("bucket", method, about): _S.list_buckets
        for method, about in (("HEAD", ""), ("GET", "location"), ("GET", "versioning"), ("GET", "policyStatus"))
    },
    ("bucket", "GET", "requestPayment"): _S.list_buckets,
    **{("bucket", "GET", about): _S.list_buckets for about in _SETTINGS},
    **{("bucket", "PUT", about): _S.configure_bucket for about in _SETTINGS},
    **{("bucket", "DELETE", about): _S.configure_bucket for about in _SETTINGS},
    **{("object", method, ""): _S.get_object for method in ("GET", "HEAD")},
    **{("object", "GET", about): _S.get_object for about in ("acl", "attributes", "tagging")},
    **{("object", "PUT", about): _S.change_object for about in ("acl", "tagging")},
    ("object", "DELETE", "tagging"): _S.change_object,
    ("object", "PUT", ""): _S.put_object,
    ("object", "PUT", "copy"): _S.copy_object,
    ("object", "DELETE", ""): _S.delete_object,
    ("object", "POST", "uploads"): _S.part,
    ("object", "PUT", "uploadId"): _S.part,
    ("object", "GET", "uploadId"): _S.part,
    ("object", "DELETE", "uploadId"): _S.part,
    ("object", "PUT", "uploadId copy"): _S.copy_part,
    ("object", "POST", "uploadId"): _S.complete_upload,
}
"""What a request is about, its method, and what of that: to what answers it."""


def routing_server(topology: Topology, devices: Devices) -> RoutingServer:
    """The whole proxy. What the operator may want to know goes to stderr."""
    return RoutingServer(topology, _locations(topology, devices), functools.partial(print, file=sys.stderr, flush=True))


def _locations(topology: Topology, devices: Devices) -> Locations:
    own = topology.host(devices.host).devices
    directory: Path = devices.dir(own[0].name) if own else devices.root
    if topology.routing.locations == "memory":
        return MemoryLocations(directory)
    return DatabaseLocations(directory, devices.medium(own[0].name) if own else None)


def _users(topology: Topology) -> list[Credentials]:
    """Whose buckets are read after a start."""
    if topology.routing.access_key:
        return [Credentials(topology.routing.access_key, topology.routing.secret_key)]
    return [Credentials(user_id_of(user), user.key) for user in topology.users]


async def _no_store(_: Call) -> Reply:
    raise NotImplementedError("the routing proxy has no pipeline of its own")
