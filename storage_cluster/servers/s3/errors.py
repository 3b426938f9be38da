"""Errors of S3: a code, its status and its message, and the XML document that a client gets.

An `S3Error` is a `Refusal`, so it passes through the proxy's pipeline like any other; its reply is an `ErrorReply`,
which the gateway completes with the resource and the request's id.

Source: Amazon S3 API reference, "Error responses", "List of error codes".
"""

import dataclasses
import traceback
from collections.abc import Awaitable, Mapping
from typing import Any

from multidict import CIMultiDict

from storage_cluster.servers.http.messages import BrokenOff, ClientGone, Refusal, Reply
from storage_cluster.servers.s3.documents import document, element

CODES: dict[str, tuple[int, str]] = {
    "AccessControlListNotSupported": (400, "The bucket does not allow ACLs."),
    "AccessDenied": (403, "Access Denied"),
    "AuthorizationHeaderMalformed": (400, "The authorization header that you provided is not valid."),
    "AuthorizationQueryParametersError": (400, "The authorization query parameters that you provided are not valid."),
    "BadDigest": (400, "The Content-MD5 or checksum value that you specified did not match what was received."),
    "BucketAlreadyExists": (
        409,
        "The requested bucket name is not available. The bucket namespace is shared by all users of the system. "
        "Select a different name and try again.",
    ),
    "BucketAlreadyOwnedByYou": (409, "The bucket that you tried to create already exists, and you own it."),
    "BucketNotEmpty": (409, "The bucket that you tried to delete is not empty."),
    "ConditionalRequestConflict": (409, "A conflicting operation occurred. Try again."),
    "EntityTooLarge": (400, "Your proposed upload exceeds the maximum allowed object size."),
    "EntityTooSmall": (400, "Your proposed upload is smaller than the minimum allowed object size."),
    "ExpiredToken": (400, "The provided token has expired."),
    "IllegalVersioningConfigurationException": (
        400,
        "The versioning configuration specified in the request is invalid.",
    ),
    "IncompleteBody": (
        400,
        "You did not provide the number of bytes specified by the Content-Length HTTP header.",
    ),
    "InsufficientStorage": (507, "Outside of reservations the store has no room for this."),
    "InternalError": (500, "An internal error occurred. Try again."),
    "InvalidAccessKeyId": (403, "The access key ID that you provided does not exist in our records."),
    "InvalidArgument": (400, "Invalid Argument"),
    "InvalidBucketAclWithObjectOwnership": (
        400,
        "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting.",
    ),
    "InvalidBucketName": (400, "The specified bucket is not valid."),
    "InvalidBucketState": (409, "The request is not valid with the current state of the bucket."),
    "InvalidDigest": (400, "The Content-MD5 or checksum value that you specified is not valid."),
    "InvalidLocationConstraint": (400, "The specified location constraint is not valid."),
    "InvalidPart": (
        400,
        "One or more of the specified parts could not be found. The part might not have been uploaded, or the "
        "specified entity tag might not have matched the part's entity tag.",
    ),
    "InvalidPartNumber": (416, "The requested partnumber is not satisfiable."),
    "InvalidPartOrder": (400, "The list of parts was not in ascending order. The parts list must be in order."),
    "InvalidPolicyDocument": (400, "The content of the form does not meet the conditions of the policy document."),
    "InvalidRange": (416, "The requested range is not satisfiable."),
    "InvalidRequest": (400, "The request is not valid."),
    "InvalidRetentionPeriod": (400, "The retention period is not valid."),
    "InvalidStorageClass": (400, "The storage class that you specified is not valid."),
    "InvalidTag": (400, "The tag provided was not a valid tag."),
    "InvalidURI": (400, "The specified URI could not be parsed."),
    "KeyTooLongError": (400, "Your key is too long."),
    "MalformedACLError": (
        400,
        "The XML that you provided was not well formed or did not validate against our published schema.",
    ),
    "MalformedPolicy": (400, "The policy is not valid."),
    "MalformedXML": (
        400,
        "The XML that you provided was not well formed or did not validate against our published schema.",
    ),
    "MaxPostPreDataLengthExceeded": (400, "Your POST request fields preceding the upload file were too large."),
    "MetadataTooLarge": (400, "Your metadata headers exceed the maximum allowed metadata size."),
    "MethodNotAllowed": (405, "The specified method is not allowed against this resource."),
    "MissingContentLength": (411, "You must provide the Content-Length HTTP header."),
    "MissingRequestBodyError": (400, "The request body is empty."),
    "NoSuchBucket": (404, "The specified bucket does not exist."),
    "NoSuchBucketPolicy": (404, "The specified bucket does not have a bucket policy."),
    "NoSuchCORSConfiguration": (404, "The CORS configuration does not exist."),
    "NoSuchKey": (404, "The specified key does not exist."),
    "NoSuchLifecycleConfiguration": (404, "The lifecycle configuration does not exist"),
    "NoSuchObjectLockConfiguration": (404, "The specified object does not have an ObjectLock configuration"),
    "NoSuchPublicAccessBlockConfiguration": (404, "The public access block configuration was not found."),
    "NoSuchReservation": (403, "You have no reservation with this id."),
    "NoSuchTagSet": (404, "There is no tag set associated with the bucket."),
    "NoSuchUpload": (
        404,
        "The specified multipart upload does not exist. The upload ID might not be valid, or the multipart upload "
        "might have been aborted or completed.",
    ),
    "NoSuchVersion": (404, "The version ID specified in the request does not match an existing version."),
    "NotImplemented": (501, "A header or operation that you used is not implemented here."),
    "NotModified": (304, "Not Modified"),
    "ObjectLockConfigurationNotFoundError": (404, "Object Lock configuration does not exist for this bucket"),
    "OwnershipControlsNotFoundError": (404, "The bucket ownership controls were not found."),
    "PreconditionFailed": (412, "At least one of the preconditions that you specified did not hold."),
    "QuotaExceeded": (403, "The bucket's reservation has no room for this."),
    "ReservationExpired": (403, "The reservation has ended."),
    "ReservationMismatch": (400, "The reservation is for something else."),
    "ReservationNotYetValid": (403, "The reservation has not begun."),
    "ReservationRefused": (409, "What was asked for cannot be reserved."),
    "RequestHeaderSectionTooLarge": (
        400,
        "Your request header section exceeds the maximum allowed request header section size.",
    ),
    "RequestTimeTooSkewed": (
        403,
        "The difference between the request time and the server's time is too large.",
    ),
    "RequestTimeout": (400, "Your socket connection to the server was not read from or written to in time."),
    "SignatureDoesNotMatch": (
        403,
        "The request signature that we calculated does not match the signature that you provided. Check your secret "
        "access key and signing method.",
    ),
    "SlowDown": (503, "Please reduce your request rate."),
    "ServiceUnavailable": (503, "The storage servers do not answer. Try again."),
    "TooManyBuckets": (400, "You have attempted to create more buckets than are allowed."),
    "UnexpectedContent": (400, "This request does not support content."),
    "UnresolvableGrantByEmailAddress": (
        400,
        "The email address that you provided does not match any account on record.",
    ),
    "UnsupportedSignature": (400, "The provided request is signed with an unsupported signature version."),
    "XAmzContentSHA256Mismatch": (
        400,
        "The provided 'x-amz-content-sha256' header does not match what was computed.",
    ),
}
"""Code to status and message."""

_BY_STATUS = {
    400: "InvalidRequest",
    403: "AccessDenied",
    404: "NoSuchKey",
    405: "MethodNotAllowed",
    408: "RequestTimeout",
    409: "ConditionalRequestConflict",
    411: "MissingContentLength",
    412: "PreconditionFailed",
    413: "EntityTooLarge",
    414: "InvalidURI",
    416: "InvalidRange",
    422: "BadDigest",
    431: "RequestHeaderSectionTooLarge",
    499: "IncompleteBody",
    501: "NotImplemented",
    503: "ServiceUnavailable",
    507: "ServiceUnavailable",
}


@dataclasses.dataclass
class ErrorReply(Reply):
    """A reply to a request that failed; its body is written once the resource and the request's id are known."""

    error: "S3Error | None" = None


class S3Error(Refusal):
    """A request is refused with one of S3's codes; `fields` are further elements of the document."""

    def __init__(
        self,
        code: str,
        message: str | None = None,
        fields: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        status, usual_message = CODES[code]
        super().__init__(status, message or usual_message, headers)
        self.code = code
        self.fields = dict(fields or {})

    def reply(self) -> ErrorReply:
        """The reply, still without its document."""
        return ErrorReply(self.status, CIMultiDict(self.headers), error=self)


def error_of_status(status: int, message: str | None = None) -> S3Error:
    """The error that stands for a storage server's or the pipeline's refusal."""
    return S3Error(_BY_STATUS.get(status, "InternalError"), message)


async def reply_or_error(answer: Awaitable[Reply]) -> Reply:
    """An operation's reply, or the one that says why it has none. Raises: ClientGone, BrokenOff."""
    try:
        return await answer
    except S3Error as error:
        return error.reply()
    except Refusal as refusal:
        return error_of_status(refusal.status).reply()
    except (ClientGone, BrokenOff):
        raise
    except Exception:  # noqa: BLE001  a mistake of ours must reach the client as an answer
        traceback.print_exc()
        return S3Error("InternalError").reply()


def write_error(reply: ErrorReply, resource: str, request_id: str) -> None:
    """Complete an error's reply with its document."""
    assert reply.error is not None
    if reply.status == 304:
        return
    fields = [element(name, str(value)) for name, value in reply.error.fields.items()]
    root = element(
        "Error",
        element("Code", reply.error.code),
        element("Message", reply.error.text or ""),
        *fields,
        element("Resource", resource),
        element("RequestId", request_id),
        element("HostId", request_id),
    )
    reply.body = document(root, namespace=None)
    reply.headers["Content-Type"] = "application/xml"
