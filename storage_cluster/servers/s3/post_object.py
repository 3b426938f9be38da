"""Browser uploads: an object from a form, whose policy is signed by the owner of a key (POST to a bucket).

Fields come before the file; what follows it is ignored. The policy's signature is of version 4, or of version 2
(HMAC-SHA1), which forms still use: it signs the policy alone, so the form of the request does not matter.

Source: Amazon S3 API reference, "POST Object".
"""

import base64
import dataclasses
import datetime
import hmac
from collections.abc import AsyncIterator, Mapping
from urllib.parse import quote

from multidict import CIMultiDict

from storage_cluster.s3.signatures import UNSIGNED_PAYLOAD, is_same_signature, signature, signing_key
from storage_cluster.servers.http.messages import Body, Reply
from storage_cluster.servers.proxy.multipart import FormReader, boundary_of
from storage_cluster.servers.s3.addressing import KEY_MAX_BYTES
from storage_cluster.servers.s3.authentication import Signed, scope_of_credential
from storage_cluster.servers.s3.context import Operation
from storage_cluster.servers.s3.documents import element, xml_reply
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.objects import put_object
from storage_cluster.servers.s3.post_policy import PostPolicy, parse_post_policy
from storage_cluster.servers.s3.request import Requester
from storage_cluster.servers.s3.tags import OBJECT_TAGS_MAX, tags_in_document, tags_text

FIELDS_MAX_BYTES = 65_536
_HEADERS = ("content-type", "cache-control", "content-disposition", "content-encoding", "expires", "content-md5")
_SIGNING = ("x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature", "x-amz-security-token")


@dataclasses.dataclass(frozen=True)
class Form:
    """A form up to its file."""

    fields: Mapping[str, str]  # names in lower case
    filename: str

    @property
    def key(self) -> str:
        """The object's key. Raises: S3Error."""
        key = self.fields.get("key", "").replace("${filename}", self.filename)
        if not key:
            raise S3Error("InvalidArgument", "Bucket POST must contain a field named 'key'.")
        if len(key.encode("utf-8", "surrogateescape")) > KEY_MAX_BYTES:
            raise S3Error("KeyTooLongError", fields={"MaxSizeAllowed": KEY_MAX_BYTES})
        return key

    def headers(self) -> CIMultiDict[str]:
        """The headers of the PUT that the form stands for. Raises: S3Error."""
        taken = {
            name: value
            for name, value in self.fields.items()
            if name in _HEADERS or (name.startswith("x-amz-") and name not in _SIGNING)
        }
        if "acl" in self.fields:
            taken["x-amz-acl"] = self.fields["acl"]
        if "tagging" in self.fields:
            tags = tags_in_document(self.fields["tagging"].encode("utf-8", "surrogateescape"), OBJECT_TAGS_MAX)
            taken["x-amz-tagging"] = tags_text(tags)
        return CIMultiDict(taken)


async def post_object(op: Operation) -> Reply:
    """POST Object. Raises: S3Error."""
    boundary = boundary_of(op.request.headers.get("Content-Type", ""))
    if boundary is None:
        raise S3Error("PreconditionFailed", "Bucket POST must be of the enclosure-type multipart/form-data")
    reader = FormReader(op.request.call.body, boundary)
    form = await _read_form(reader)
    key = form.key
    requester, policy = _authorize(op, form)
    content = _checked_size(reader.content(), policy)
    call = dataclasses.replace(op.request.call, method="PUT", headers=form.headers(), body=Body(content, None))
    address = dataclasses.replace(op.request.address, key=key)
    request = dataclasses.replace(op.request, call=call, address=address, requester=requester)
    signed = Signed(requester, UNSIGNED_PAYLOAD)
    put = dataclasses.replace(op, request=request, signed=signed, key=key, original_headers=call.headers)
    return _answer(op, form, key, await put_object(put))


async def _read_form(reader: FormReader) -> Form:
    fields: dict[str, str] = {}
    read = 0
    while (part := await reader.next_part()) is not None:
        name = part.name.lower()
        if name == "file":
            return Form(fields, (part.filename or "").rpartition("/")[2])
        value = b""
        async for chunk in reader.content():
            read += len(chunk)
            if read > FIELDS_MAX_BYTES:
                raise S3Error("MaxPostPreDataLengthExceeded")
            value += chunk
        fields[name] = value.decode("utf-8", "surrogateescape")
    raise S3Error("InvalidArgument", "POST requires exactly one file upload per request.")


def _authorize(op: Operation, form: Form) -> tuple[Requester | None, PostPolicy | None]:
    """Who lets the form upload, and by which policy; nobody, if it is not signed. Raises: S3Error."""
    fields = form.fields
    if "policy" not in fields:
        if any(name in fields for name in ("awsaccesskeyid", "x-amz-credential")):
            raise S3Error("InvalidArgument", "Bucket POST must contain a field named 'policy'.")
        return None, None
    requester = _signer(op, fields)
    policy = parse_post_policy(fields["policy"])
    policy.check({**fields, "bucket": op.bucket.name}, datetime.datetime.now(datetime.UTC))
    return requester, policy


def _signer(op: Operation, fields: Mapping[str, str]) -> Requester:
    """Who signed a policy. Raises: S3Error."""
    is_v4 = "x-amz-credential" in fields
    names = ("x-amz-credential", "x-amz-signature") if is_v4 else ("awsaccesskeyid", "signature")
    for name in names:
        if name not in fields:
            raise S3Error("InvalidArgument", f"Bucket POST must contain a field named '{name}'.")
    text, given = fields["policy"], fields[names[1]]
    if is_v4:
        access_key, scope = scope_of_credential(fields["x-amz-credential"])
        requester = op.gateway.authenticator.requester(access_key)
        expected = signature(signing_key(requester.user.key, scope), text)
    else:
        requester = op.gateway.authenticator.requester(fields["awsaccesskeyid"])
        expected = base64.b64encode(hmac.digest(requester.user.key.encode(), text.encode(), "sha1")).decode()
    if not is_same_signature(expected, given):
        raise S3Error("SignatureDoesNotMatch", fields={"AWSAccessKeyId": requester.id})
    return requester


async def _checked_size(chunks: AsyncIterator[bytes], policy: PostPolicy | None) -> AsyncIterator[bytes]:
    """The file's bytes. Raises: S3Error where there are more or fewer than the policy allows."""
    read = 0
    async for chunk in chunks:
        read += len(chunk)
        if policy is not None and policy.size_max is not None and read > policy.size_max:
            raise S3Error("EntityTooLarge", fields={"MaxSizeAllowed": policy.size_max})
        yield chunk
    if policy is not None and read < policy.size_min:
        raise S3Error("EntityTooSmall", fields={"MinSizeAllowed": policy.size_min})


def _answer(op: Operation, form: Form, key: str, stored: Reply) -> Reply:
    """The answer to a form, as its fields ask: a redirection, or a status."""
    location = f"http://{op.request.headers.get('Host', '')}/{op.bucket.name}/{quote(key, errors='surrogateescape')}"
    redirect = form.fields.get("success_action_redirect") or form.fields.get("redirect")
    etag = stored.headers["ETag"]
    if redirect:
        query = f"bucket={quote(op.bucket.name)}&key={quote(key, errors='surrogateescape')}&etag={quote(etag)}"
        return op.request.say(303, {"Location": f"{redirect}{'&' if '?' in redirect else '?'}{query}"})
    status = form.fields.get("success_action_status", "")
    headers = {"Location": location, **dict(stored.headers)}
    if status != "201":
        return op.request.say(200 if status == "200" else 204, headers)
    named = {"Location": location, "Bucket": op.bucket.name, "Key": key, "ETag": etag}
    return xml_reply(element("PostResponse", *[element(name, text) for name, text in named.items()]), 201, headers)
