"""Operations on buckets: made, removed, listed, and what is configured of them."""

import functools
import json
import time
from collections.abc import Awaitable, Callable
from xml.etree.ElementTree import Element

from storage_cluster.servers.http.messages import Reply
from storage_cluster.servers.reservations.claims import SpaceReservation
from storage_cluster.servers.s3 import object_lock, ownership
from storage_cluster.servers.s3.access import OWNER, require_bucket
from storage_cluster.servers.s3.addressing import check_bucket_name
from storage_cluster.servers.s3.authentication import Signed
from storage_cluster.servers.s3.buckets import list_all, parts_container
from storage_cluster.servers.s3.context import Gateway, Operation
from storage_cluster.servers.s3.cors import rules_document, rules_in_document
from storage_cluster.servers.s3.documents import DocumentError, child_text, element, optional, parse, xml_reply
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.grants import acl_document, acl_in_headers, owner_element, private
from storage_cluster.servers.s3.listings import name_in, token_of
from storage_cluster.servers.s3.metadata import iso_time
from storage_cluster.servers.s3.multipart_layout import uploads_container
from storage_cluster.servers.s3.objects import read_acl
from storage_cluster.servers.s3.payload import read_verified
from storage_cluster.servers.s3.policy import POLICY_MAX_BYTES, parse_policy
from storage_cluster.servers.s3.public_access import PublicAccess
from storage_cluster.servers.s3.request import Request
from storage_cluster.servers.s3.reservations import SETTING as SPACE_SETTING
from storage_cluster.servers.s3.reservations import reserved_space, space_in_document
from storage_cluster.servers.s3.tags import BUCKET_TAGS_MAX, kept_tags, tags_document, tags_in_document, tags_text

REGION = "us-east-1"
DOCUMENT_MAX_BYTES = 65_536
BUCKETS_MAX = 10_000

Create = Callable[[dict[str, str]], Awaitable[None]]
"""Makes a bucket with these settings."""


async def list_buckets(request: Request, gateway: Gateway) -> Reply:
    """ListBuckets."""
    if request.requester is None:
        raise S3Error("AccessDenied")
    query = request.query
    prefix, limit = query.get("prefix", ""), _buckets_limit(query.get("max-buckets"))
    after = name_in(query.get("continuation-token", ""))
    owned = await gateway.buckets.of_requester(request)
    asked = [(name, made) for name, made in owned if name.startswith(prefix) and name > after]
    shown = asked[:limit]
    buckets = [
        element("Bucket", element("Name", name), element("CreationDate", iso_time(made))) for name, made in shown
    ]
    root = element(
        "ListAllMyBucketsResult",
        owner_element("Owner", request.requester.id),
        element("Buckets", *buckets),
        optional("ContinuationToken", token_of(shown[-1][0]) if len(asked) > len(shown) else None),
        optional("Prefix", query.get("prefix")),
    )
    return xml_reply(root)


def _buckets_limit(text: str | None) -> int:
    if text is None:
        return BUCKETS_MAX
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= BUCKETS_MAX:
        raise S3Error("InvalidArgument", f"max-buckets must be a number from 1 to {BUCKETS_MAX}")
    return int(text)


async def create_bucket(request: Request, signed: Signed, gateway: Gateway) -> Reply:
    """CreateBucket."""
    name = request.address.bucket
    if request.requester is None:
        raise S3Error("AccessDenied")
    check_bucket_name(name)
    owner = request.requester.id
    acl = acl_in_headers(request.headers, owner, owner, gateway.authenticator.is_user) or private(owner)
    setting = ownership.ownership_in_header(request.headers)
    if setting == ownership.ENFORCED and acl != private(owner):
        raise S3Error("InvalidBucketAclWithObjectOwnership")
    asked = _read_configuration(await read_verified(request, signed, DOCUMENT_MAX_BYTES), name)
    settings, more = {} if setting is None else {"Ownership": setting}, {}
    if request.headers.get("x-amz-bucket-object-lock-enabled", "").lower() == "true":
        settings |= {object_lock.SETTING: object_lock.BucketLock().text(), "Versioning": gateway.clock.now()}
        more = {"X-Versions-Enabled": "true"}
    create = functools.partial(gateway.buckets.create, request, name, acl, more=more)
    await (create(settings) if asked is None else _create_with_space(request, gateway, create, settings, asked))
    return request.say(200, {"Location": f"/{name}"})


async def _create_with_space(
    request: Request, gateway: Gateway, create: Create, settings: dict[str, str], asked: SpaceReservation
) -> None:
    """Make a bucket with room that is reserved. Raises: S3Error."""
    space = await gateway.book.reserve_space(request, asked)
    try:
        await create(settings | {SPACE_SETTING: json.dumps(space.to_json())})
    except BaseException:
        await gateway.book.release_space(request, space)
        raise


def _read_configuration(text: bytes, bucket: str) -> SpaceReservation | None:
    """The space reservation that a bucket's document asks for. Raises: S3Error."""
    if not text.strip():
        return None
    try:
        root = parse(text, "CreateBucketConfiguration")
    except DocumentError:
        raise S3Error("MalformedXML") from None
    location = child_text(root, "LocationConstraint")
    if location not in (None, "", REGION, "default"):
        raise S3Error("InvalidLocationConstraint", fields={"LocationConstraint": location})
    return space_in_document(root, bucket, time.time())


async def head_bucket(op: Operation) -> Reply:
    """HeadBucket."""
    require_bucket(op.request, op.bucket, "s3:ListBucket", "READ")
    headers = {"x-amz-bucket-region": REGION}
    if op.request.requester is not None and op.request.requester.id == op.bucket.owner:
        headers["X-RGW-Object-Count"] = op.bucket.info.headers.get("X-Container-Object-Count", "0")
        headers["X-RGW-Bytes-Used"] = op.bucket.info.headers.get("X-Container-Bytes-Used", "0")
    return op.request.say(200, headers)


async def delete_bucket(op: Operation) -> Reply:
    """DeleteBucket."""
    require_bucket(op.request, op.bucket, "s3:DeleteBucket", OWNER)
    space = reserved_space(op.bucket)
    await op.gateway.buckets.delete(op.request, op.bucket)
    if space is not None:
        await op.gateway.book.release_space(op.request, space)
    for container in (uploads_container(op.bucket), parts_container(op.bucket)):
        for entry in await list_all(op.request, container, {}):
            await op.request.ask_store("DELETE", (*container, entry["name"]))
        await op.request.ask_store("DELETE", container)
    return op.request.say(204)


async def get_location(op: Operation) -> Reply:
    """GetBucketLocation."""
    require_bucket(op.request, op.bucket, "s3:GetBucketLocation", OWNER)
    return xml_reply(element("LocationConstraint"))


async def get_bucket_acl(op: Operation) -> Reply:
    """GetBucketAcl."""
    require_bucket(op.request, op.bucket, "s3:GetBucketAcl", "READ_ACP")
    return xml_reply(acl_document(op.bucket.acl))


async def put_bucket_acl(op: Operation) -> Reply:
    """PutBucketAcl."""
    require_bucket(op.request, op.bucket, "s3:PutBucketAcl", "WRITE_ACP")
    await op.gateway.buckets.set_acl(op.request, op.bucket, await read_acl(op, op.bucket.owner))
    return op.request.say(200)


async def get_versioning(op: Operation) -> Reply:
    """GetBucketVersioning."""
    require_bucket(op.request, op.bucket, "s3:GetBucketVersioning", OWNER)
    status = op.bucket.versioning.status
    return xml_reply(element("VersioningConfiguration", element("Status", status) if status else None))


async def put_versioning(op: Operation) -> Reply:
    """PutBucketVersioning."""
    require_bucket(op.request, op.bucket, "s3:PutBucketVersioning", OWNER)
    root = await _document(op, "VersioningConfiguration")
    status, versioning = child_text(root, "Status"), op.bucket.versioning
    if status not in ("Enabled", "Suspended"):
        raise S3Error("IllegalVersioningConfigurationException")
    if status == "Suspended" and op.bucket.lock is not None:
        raise S3Error(
            "InvalidBucketState",
            "An Object Lock configuration is present on this bucket, so the versioning state cannot be changed.",
        )
    if child_text(root, "MfaDelete") == "Enabled":
        raise S3Error("NotImplemented", "MFA delete is not built.")
    if status == (versioning.status or "Suspended") and versioning.switched:
        return op.request.say(200)
    switched = [*versioning.switched, op.gateway.clock.now()]
    if not versioning.switched and status == "Suspended":
        switched.append(switched[-1])  # suspended at once: everything is `null`, and the status is known
        await op.gateway.buckets.configure(
            op.request, op.bucket, {}, {"X-Versions-Enabled": "true"}
        )  # a place for them
    headers = {"X-Versions-Enabled": "true" if status == "Enabled" else "false"}
    await op.gateway.buckets.configure(op.request, op.bucket, {"Versioning": ",".join(switched)}, headers)
    return op.request.say(200)


async def get_policy(op: Operation) -> Reply:
    """GetBucketPolicy."""
    require_bucket(op.request, op.bucket, "s3:GetBucketPolicy", OWNER)
    policy = op.bucket.policy
    if policy is None:
        raise S3Error("NoSuchBucketPolicy", fields={"BucketName": op.bucket.name})
    reply = op.request.say(200, {"Content-Type": "application/json"})
    reply.body = policy.text.encode()
    return reply


async def get_policy_status(op: Operation) -> Reply:
    """GetBucketPolicyStatus."""
    require_bucket(op.request, op.bucket, "s3:GetBucketPolicyStatus", OWNER)
    policy = op.bucket.policy
    public = op.bucket.in_force(op.bucket.acl).is_public or (policy is not None and policy.is_public)
    return xml_reply(element("PolicyStatus", element("IsPublic", "true" if public else "false")))


async def put_policy(op: Operation) -> Reply:
    """PutBucketPolicy."""
    require_bucket(op.request, op.bucket, "s3:PutBucketPolicy", OWNER)
    body = await read_verified(op.request, op.signed, POLICY_MAX_BYTES)
    text = body.decode("utf-8", "replace")
    policy = parse_policy(text, op.bucket.name)
    if op.bucket.public_access.block_policy and policy.is_public:
        raise S3Error("AccessDenied")
    await op.gateway.buckets.configure(op.request, op.bucket, {"Policy": text})
    return op.request.say(204)


async def get_ownership(op: Operation) -> Reply:
    """GetBucketOwnershipControls."""
    require_bucket(op.request, op.bucket, "s3:GetBucketOwnershipControls", OWNER)
    setting = op.bucket.setting("Ownership")
    if setting is None:
        raise S3Error("OwnershipControlsNotFoundError", fields={"BucketName": op.bucket.name})
    return xml_reply(ownership.ownership_document(setting))


async def put_ownership(op: Operation) -> Reply:
    """PutBucketOwnershipControls."""
    require_bucket(op.request, op.bucket, "s3:PutBucketOwnershipControls", OWNER)
    setting = ownership.ownership_in_document(await read_verified(op.request, op.signed, DOCUMENT_MAX_BYTES))
    if setting == ownership.ENFORCED and op.bucket.acl != private(op.bucket.owner):
        raise S3Error("InvalidBucketAclWithObjectOwnership")
    await op.gateway.buckets.configure(op.request, op.bucket, {"Ownership": setting})
    return op.request.say(200)


async def delete_ownership(op: Operation) -> Reply:
    """DeleteBucketOwnershipControls."""
    return await _remove_setting(op, "s3:PutBucketOwnershipControls", "Ownership")


async def get_public_access(op: Operation) -> Reply:
    """GetPublicAccessBlock."""
    require_bucket(op.request, op.bucket, "s3:GetBucketPublicAccessBlock", OWNER)
    if op.bucket.setting("Public-Access") is None:
        raise S3Error("NoSuchPublicAccessBlockConfiguration", fields={"BucketName": op.bucket.name})
    return xml_reply(op.bucket.public_access.document())


async def put_public_access(op: Operation) -> Reply:
    """PutPublicAccessBlock."""
    require_bucket(op.request, op.bucket, "s3:PutBucketPublicAccessBlock", OWNER)
    given = PublicAccess.from_document(await read_verified(op.request, op.signed, DOCUMENT_MAX_BYTES))
    await op.gateway.buckets.configure(op.request, op.bucket, {"Public-Access": given.text()})
    return op.request.say(200)


async def delete_public_access(op: Operation) -> Reply:
    """DeletePublicAccessBlock."""
    return await _remove_setting(op, "s3:PutBucketPublicAccessBlock", "Public-Access")


async def delete_policy(op: Operation) -> Reply:
    """DeleteBucketPolicy."""
    return await _remove_setting(op, "s3:DeleteBucketPolicy", "Policy")


async def get_cors(op: Operation) -> Reply:
    """GetBucketCors."""
    require_bucket(op.request, op.bucket, "s3:GetBucketCORS", OWNER)
    rules = op.bucket.json_setting("Cors")
    if not rules:
        raise S3Error("NoSuchCORSConfiguration", fields={"BucketName": op.bucket.name})
    return xml_reply(rules_document(rules))


async def put_cors(op: Operation) -> Reply:
    """PutBucketCors."""
    require_bucket(op.request, op.bucket, "s3:PutBucketCORS", OWNER)
    rules = rules_in_document(await read_verified(op.request, op.signed, DOCUMENT_MAX_BYTES))
    await op.gateway.buckets.configure(op.request, op.bucket, {"Cors": json.dumps(rules)})
    return op.request.say(200)


async def delete_cors(op: Operation) -> Reply:
    """DeleteBucketCors."""
    return await _remove_setting(op, "s3:PutBucketCORS", "Cors")


async def get_bucket_tagging(op: Operation) -> Reply:
    """GetBucketTagging."""
    require_bucket(op.request, op.bucket, "s3:GetBucketTagging", OWNER)
    text = op.bucket.setting("Tags")
    if text is None:
        raise S3Error("NoSuchTagSet", fields={"BucketName": op.bucket.name})
    return xml_reply(tags_document(kept_tags(text)))


async def put_bucket_tagging(op: Operation) -> Reply:
    """PutBucketTagging."""
    require_bucket(op.request, op.bucket, "s3:PutBucketTagging", OWNER)
    tags = tags_in_document(await read_verified(op.request, op.signed, DOCUMENT_MAX_BYTES), BUCKET_TAGS_MAX)
    await op.gateway.buckets.configure(op.request, op.bucket, {"Tags": tags_text(tags)})
    return op.request.say(204)


async def delete_bucket_tagging(op: Operation) -> Reply:
    """DeleteBucketTagging."""
    return await _remove_setting(op, "s3:PutBucketTagging", "Tags")


async def get_request_payment(op: Operation) -> Reply:
    """GetBucketRequestPayment."""
    require_bucket(op.request, op.bucket, "s3:GetBucketRequestPayment", OWNER)
    return xml_reply(element("RequestPaymentConfiguration", element("Payer", "BucketOwner")))


async def _remove_setting(op: Operation, action: str, name: str) -> Reply:
    """Remove what is configured under a name, if the request may. Raises: S3Error."""
    require_bucket(op.request, op.bucket, action, OWNER)
    await op.gateway.buckets.configure(op.request, op.bucket, {name: None})
    return op.request.say(204)


async def _document(op: Operation, root_name: str) -> Element:
    try:
        return parse(await read_verified(op.request, op.signed, DOCUMENT_MAX_BYTES), root_name)
    except DocumentError:
        raise S3Error("MalformedXML") from None
