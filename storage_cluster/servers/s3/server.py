"""The S3 gateway: from a request to the operation that it names, and back.

    client ─ S3 ─▶ gateway: who sent it ─▶ which bucket and key ─▶ which operation ─▶ the store's pipeline
                                                                                       └▶ storage servers

Behind the operations is the proxy's own pipeline without what is only for Swift's clients, so objects are the same
through both APIs: versions, large objects, symlinks, quotas. The gateway decides itself who may do what, and makes all
its calls with every right. A request's id is a transaction id, which goes with everything done for it on all hosts.

Adding an operation: a line of `OPERATIONS`.

Source: Amazon S3 API reference.
"""

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from storage_cluster.servers.http.backend import Backend
from storage_cluster.servers.http.messages import ACCESS, Call, Handler, Refusal, Reply
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.pipeline import STORE_PIPELINE, pipeline
from storage_cluster.servers.proxy.server import Store
from storage_cluster.servers.s3 import bucket_operations as buckets_api
from storage_cluster.servers.s3 import (
    deletions,
    lifecycle_operations,
    listings,
    multipart,
    object_lock_operations,
    objects,
    post_object,
)
from storage_cluster.servers.s3.addressing import Address, address_of
from storage_cluster.servers.s3.authentication import Authenticator
from storage_cluster.servers.s3.book_client import BookClient
from storage_cluster.servers.s3.buckets import Buckets
from storage_cluster.servers.s3.cache import ObjectCache
from storage_cluster.servers.s3.context import Gateway, Operation
from storage_cluster.servers.s3.cors import headers_for
from storage_cluster.servers.s3.errors import ErrorReply, S3Error, error_of_status, reply_or_error, write_error
from storage_cluster.servers.s3.request import Request
from storage_cluster.servers.s3.reservations import reserved_operation, until_its_end

MIB = 1024**2

Operate = Callable[[Operation], Awaitable[Reply]]

SUBRESOURCES = (
    *("accelerate", "acl", "analytics", "attributes", "cors", "delete", "encryption", "intelligent-tiering"),
    *("inventory", "legal-hold", "lifecycle", "location", "logging", "metrics", "notification", "object-lock"),
    *("ownershipControls", "policy", "policyStatus", "publicAccessBlock", "replication", "requestPayment", "restore"),
    *("retention", "select", "tagging", "torrent", "uploadId", "uploads", "versioning", "versions", "website"),
)
"""Parameters of the query that name what of a bucket or object a request is about."""

BUCKET, OBJECT = "bucket", "object"

OPERATIONS: dict[tuple[str, str, str], Operate] = {
    (BUCKET, "HEAD", ""): buckets_api.head_bucket,
    (BUCKET, "DELETE", ""): buckets_api.delete_bucket,
    (BUCKET, "GET", ""): listings.list_objects,
    (BUCKET, "GET", "list-type=2"): listings.list_objects_v2,
    (BUCKET, "GET", "versions"): listings.list_versions,
    (BUCKET, "GET", "uploads"): multipart.list_uploads,
    (BUCKET, "GET", "location"): buckets_api.get_location,
    (BUCKET, "GET", "acl"): buckets_api.get_bucket_acl,
    (BUCKET, "PUT", "acl"): buckets_api.put_bucket_acl,
    (BUCKET, "GET", "versioning"): buckets_api.get_versioning,
    (BUCKET, "PUT", "versioning"): buckets_api.put_versioning,
    (BUCKET, "GET", "policy"): buckets_api.get_policy,
    (BUCKET, "PUT", "policy"): buckets_api.put_policy,
    (BUCKET, "DELETE", "policy"): buckets_api.delete_policy,
    (BUCKET, "GET", "ownershipControls"): buckets_api.get_ownership,
    (BUCKET, "PUT", "ownershipControls"): buckets_api.put_ownership,
    (BUCKET, "DELETE", "ownershipControls"): buckets_api.delete_ownership,
    (BUCKET, "GET", "publicAccessBlock"): buckets_api.get_public_access,
    (BUCKET, "PUT", "publicAccessBlock"): buckets_api.put_public_access,
    (BUCKET, "DELETE", "publicAccessBlock"): buckets_api.delete_public_access,
    (BUCKET, "GET", "policyStatus"): buckets_api.get_policy_status,
    (BUCKET, "GET", "cors"): buckets_api.get_cors,
    (BUCKET, "PUT", "cors"): buckets_api.put_cors,
    (BUCKET, "DELETE", "cors"): buckets_api.delete_cors,
    (BUCKET, "GET", "tagging"): buckets_api.get_bucket_tagging,
    (BUCKET, "PUT", "tagging"): buckets_api.put_bucket_tagging,
    (BUCKET, "DELETE", "tagging"): buckets_api.delete_bucket_tagging,
    (BUCKET, "GET", "lifecycle"): lifecycle_operations.get_lifecycle,
    (BUCKET, "PUT", "lifecycle"): lifecycle_operations.put_lifecycle,
    (BUCKET, "DELETE", "lifecycle"): lifecycle_operations.delete_lifecycle,
    (BUCKET, "GET", "object-lock"): object_lock_operations.get_object_lock,
    (BUCKET, "PUT", "object-lock"): object_lock_operations.put_object_lock,
    (BUCKET, "GET", "requestPayment"): buckets_api.get_request_payment,
    (BUCKET, "POST", "delete"): deletions.delete_objects,
    (BUCKET, "POST", ""): post_object.post_object,
    (OBJECT, "GET", ""): objects.get_object,
    (OBJECT, "HEAD", ""): objects.get_object,
    (OBJECT, "PUT", ""): objects.put_object,
    (OBJECT, "PUT", "copy"): objects.copy_object,
    (OBJECT, "DELETE", ""): deletions.delete_object,
    (OBJECT, "GET", "attributes"): objects.get_attributes,
    (OBJECT, "GET", "acl"): objects.get_object_acl,
    (OBJECT, "PUT", "acl"): objects.put_object_acl,
    (OBJECT, "GET", "tagging"): objects.get_object_tagging,
    (OBJECT, "PUT", "tagging"): objects.put_object_tagging,
    (OBJECT, "DELETE", "tagging"): objects.delete_object_tagging,
    (OBJECT, "GET", "retention"): object_lock_operations.get_retention,
    (OBJECT, "PUT", "retention"): object_lock_operations.put_retention,
    (OBJECT, "GET", "legal-hold"): object_lock_operations.get_legal_hold,
    (OBJECT, "PUT", "legal-hold"): object_lock_operations.put_legal_hold,
    (OBJECT, "POST", "uploads"): multipart.create_upload,
    (OBJECT, "PUT", "uploadId"): multipart.upload_part,
    (OBJECT, "PUT", "uploadId copy"): multipart.upload_part_copy,
    (OBJECT, "GET", "uploadId"): multipart.list_parts,
    (OBJECT, "POST", "uploadId"): multipart.complete_upload,
    (OBJECT, "DELETE", "uploadId"): multipart.abort_upload,
}
"""What a request is about, its method, and what of that: to what answers it."""


def names_of(_: str) -> tuple[str, ...]:
    """No names: the bucket may be in the host's name, which the path does not show."""
    return ()


def gateway_server(backend: Backend, cache_file: Path | None = None) -> Handler:
    """The whole gateway as one handler. `cache_file`: where the counters of its cache go."""
    return S3Server(backend, ObjectCache(backend.topology.s3.cache_mib * MIB, cache_file))


class S3Server:
    """Answers requests to S3."""

    def __init__(self, backend: Backend, cache: ObjectCache) -> None:
        info_cache_s = backend.topology.s3.info_cache_s
        context = ProxyContext.over(backend, info_cache_s)
        context.whole = pipeline([make(context) for make in STORE_PIPELINE], Store(context))
        self._store = context.whole
        buckets = Buckets(context.infos, info_cache_s)
        day_s, users = backend.topology.s3.lifecycle_day_s, Authenticator(backend.topology.users)
        book = BookClient(backend)
        self._gateway = Gateway(users, buckets, context.clock, context.replicas, cache, day_s, book)

    async def __call__(self, call: Call) -> Reply:
        """One request."""
        address = Address("", "")
        try:
            address = address_of(call.headers.get("Host", ""), call.path)
            reply = await reply_or_error(self._answer(call, address))
        except S3Error as error:
            reply = error.reply()
        return complete_reply(reply, address.resource, call.transaction_id)

    async def _answer(self, call: Call, address: Address) -> Reply:
        request = Request(call, address, self._store)
        if call.method == "OPTIONS":
            return await self._preflight(request)
        signed = self._gateway.authenticator.authenticate(call)
        call.headers.popall(ACCESS, None)  # only the gateway says what is reserved
        request = dataclasses.replace(request, requester=signed.requester)
        if not address.bucket:
            if call.method != "GET":
                raise S3Error("MethodNotAllowed")
            return await buckets_api.list_buckets(request, self._gateway)
        about = subresource_of(call)
        if not address.key and (call.method, about) == ("PUT", ""):
            return await buckets_api.create_bucket(request, signed, self._gateway)
        bucket = await self._gateway.buckets.find(request, address.bucket)
        if request.headers.get("x-amz-expected-bucket-owner", bucket.owner) != bucket.owner:
            raise S3Error("AccessDenied")
        operate = _operation(OBJECT if address.key else BUCKET, call.method, about)
        operation = Operation(request, signed, self._gateway, bucket, address.key, call.headers)
        try:
            async with reserved_operation(operation, about):
                reply = until_its_end(operation, await operate(operation))
        except S3Error as error:
            reply = error.reply()
        _add_cors(call, bucket.json_setting("Cors"), reply)
        return reply

    async def _preflight(self, request: Request) -> Reply:
        origin, method = request.headers.get("Origin"), request.headers.get("Access-Control-Request-Method")
        if origin is None or method is None:
            raise S3Error("InvalidRequest", "Insufficient information. Origin request header needed.")
        asked = [
            one.strip() for one in request.headers.get("Access-Control-Request-Headers", "").split(",") if one.strip()
        ]
        bucket = await self._gateway.buckets.find(request, request.address.bucket)
        headers = headers_for(bucket.json_setting("Cors") or [], origin, method, asked)
        if headers is None:
            raise S3Error("AccessDenied", "CORSResponse: This CORS request is not allowed.")
        return request.say(200, headers)


def reply_to(refusal: Refusal, transaction_id: str) -> Reply:
    """The reply to a request that could not be read: its framing or its path is wrong."""
    error = S3Error("InvalidURI") if refusal.status == 412 else error_of_status(refusal.status)
    return complete_reply(error.reply(), "", transaction_id)


def complete_reply(reply: Reply, resource: str, transaction_id: str) -> Reply:
    """The reply with what all replies have: the request's id, and an error's document."""
    if isinstance(reply, ErrorReply):
        write_error(reply, resource, transaction_id)
    reply.headers.setdefault("Content-Type", "application/xml")
    reply.headers["x-amz-request-id"] = reply.headers["x-amz-id-2"] = transaction_id
    return reply


def subresource_of(call: Call) -> str:
    """What of a bucket or object a request is about, as `OPERATIONS` has it."""
    named = next((name for name in SUBRESOURCES if name in call.query), "")
    if not named and call.query.get("list-type") == "2":
        return "list-type=2"
    if call.method == "PUT" and "x-amz-copy-source" in call.headers:
        return f"{named} copy".strip()
    return named


def _operation(level: str, method: str, about: str) -> Operate:
    found = OPERATIONS.get((level, method, about))
    if found is not None:
        return found
    if any((level, method, about) == (known[0], other, known[2]) for known in OPERATIONS for other in ("HEAD", "POST")):
        raise S3Error("MethodNotAllowed")
    raise S3Error("NotImplemented")


def _add_cors(call: Call, rules: list[Mapping[str, object]] | None, reply: Reply) -> None:
    origin = call.headers.get("Origin")
    if origin is not None and rules:
        reply.headers.update(headers_for(rules, origin, call.method) or {})
