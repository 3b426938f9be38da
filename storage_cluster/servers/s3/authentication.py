"""Who sent a request: its signature, version 4, in a header or in the query (a presigned URL).

A user's access key is ACCOUNT:NAME, the secret its key, as the topology has them. A request without a signature is
nobody's, and may do what everybody may. Signatures of version 2 are refused by name.

Source: Amazon S3 API reference, "Authenticating Requests (AWS Signature Version 4)".
"""

import dataclasses
import datetime
import re

from storage_cluster.s3 import chunks
from storage_cluster.s3.chunks import ChunkSigner
from storage_cluster.s3.signatures import (
    ALGORITHM,
    UNSIGNED_PAYLOAD,
    Claim,
    Scope,
    SignableRequest,
    claim_of_header,
    claim_of_query,
    expected_signature,
    is_same_signature,
)
from storage_cluster.servers.http.messages import Call
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.request import Requester, user_id_of
from storage_cluster.topology import User

SKEW_MAX_S = 900
_STREAMED = (chunks.SIGNED, chunks.SIGNED_TRAILER, chunks.UNSIGNED_TRAILER)
_CONTENT_SHA256 = "x-amz-content-sha256"
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclasses.dataclass(frozen=True)
class Signed:
    """What a request's signature says: who sent it, and how its body is signed."""

    requester: Requester | None
    payload_hash: str
    """The value of `x-amz-content-sha256`."""
    chunk_signer: ChunkSigner | None = None
    """What verifies the chunks of the body, where each is signed."""

    @property
    def is_streamed(self) -> bool:
        """Whether the body is framed as `aws-chunked`."""
        return self.payload_hash in _STREAMED

    @property
    def body_sha256(self) -> str | None:
        """SHA-256 that the body must have; None if the signature does not cover it as a whole."""
        return self.payload_hash if _SHA256.fullmatch(self.payload_hash) else None


class Authenticator:
    """Finds out who sent a request."""

    def __init__(self, users: tuple[User, ...]) -> None:
        self._users = {user_id_of(user): user for user in users}

    def is_user(self, user_id: str) -> bool:
        """Whether there is a user with this access key."""
        return user_id in self._users

    def requester(self, access_key: str) -> Requester:
        """The user with this access key. Raises: S3Error (InvalidAccessKeyId)."""
        user = self._users.get(access_key)
        if user is None:
            raise S3Error("InvalidAccessKeyId", fields={"AWSAccessKeyId": access_key})
        return Requester(user)

    def authenticate(self, call: Call) -> Signed:
        """Who sent it. Raises: S3Error for a signature that is not right."""
        path, _, query = call.target.partition("?")
        hashed = call.headers.get("x-amz-content-sha256", UNSIGNED_PAYLOAD)
        claim, time = _claim(call, query)
        if claim is None:
            return Signed(None, hashed)
        requester = self.requester(claim.access_key)
        user = requester.user
        _check_time(claim, time)
        if hashed not in (UNSIGNED_PAYLOAD, *_STREAMED) and not _SHA256.fullmatch(hashed):
            raise S3Error("InvalidArgument", "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, or a valid sha256 value.")
        _check_signed_names(call, claim)
        request = SignableRequest(call.method, path, query, list(call.headers.items()))
        expected = expected_signature(request, claim, user.key, hashed, time)
        if not is_same_signature(expected, claim.signature):
            raise S3Error("SignatureDoesNotMatch", fields={"AWSAccessKeyId": claim.access_key})
        signer = None
        if hashed in (chunks.SIGNED, chunks.SIGNED_TRAILER):
            signer = ChunkSigner(user.key, claim.scope, time, claim.signature)
        return Signed(requester, hashed, signer)


def scope_of_credential(text: str) -> tuple[str, Scope]:
    """Access key and scope in a form's `x-amz-credential`. Raises: S3Error."""
    try:
        claim = claim_of_header(f"{ALGORITHM} Credential={text}, SignedHeaders=host, Signature={'0' * 64}")
    except ValueError as error:
        raise S3Error("AuthorizationQueryParametersError", f"{error}.") from None
    return claim.access_key, claim.scope


def _check_signed_names(call: Call, claim: Claim) -> None:
    """Raises: S3Error (AccessDenied) if a header that says what is to be done is not covered by the signature.

    Otherwise whoever is given a presigned URL could make what it writes public, say.
    """
    unsigned = sorted(
        name.lower()
        for name in call.headers
        if name.lower().startswith("x-amz-") and name.lower() not in (*claim.signed_names, _CONTENT_SHA256)
    )
    if unsigned:
        fields = {"HeadersNotSigned": ", ".join(unsigned)}
        raise S3Error("AccessDenied", "There were headers present in the request which were not signed", fields)


def _claim(call: Call, query: str) -> tuple[Claim | None, str]:
    """What the request claims, and the time of its signature; None if it is not signed. Raises: S3Error."""
    authorization = call.headers.get("Authorization") or None
    if authorization is not None and authorization.startswith("AWS "):
        raise S3Error("InvalidRequest", f"Signature version 2 is not supported; use {ALGORITHM}.")
    if "Signature" in call.query and "AWSAccessKeyId" in call.query:
        raise S3Error("InvalidRequest", f"Presigned URLs of signature version 2 are not supported; use {ALGORITHM}.")
    try:
        if authorization is not None:
            return _header_claim(authorization), _header_time(call)
    except ValueError as error:
        raise S3Error("AuthorizationHeaderMalformed", f"The authorization header is malformed; {error}.") from None
    try:
        claim = claim_of_query(query)
    except ValueError as error:
        raise S3Error("AuthorizationQueryParametersError", f"{error}.") from None
    return claim, claim.time if claim else ""


def _header_claim(authorization: str) -> Claim:
    if not authorization.startswith(ALGORITHM):
        raise S3Error("InvalidArgument", "Unsupported Authorization Type", {"ArgumentName": "Authorization"})
    return claim_of_header(authorization)


def _header_time(call: Call) -> str:
    """The time that a signed request gives. Raises: S3Error."""
    given = call.headers.get("x-amz-date")
    if given is not None:
        return given
    date = call.headers.get("Date", "")
    try:
        found = datetime.datetime.strptime(date, "%a, %d %b %Y %H:%M:%S GMT")
    except ValueError:
        raise S3Error("AccessDenied", "AWS authentication requires a valid Date or x-amz-date header") from None
    return found.strftime("%Y%m%dT%H%M%SZ")


def _check_time(claim: Claim, time: str) -> None:
    try:
        signed = datetime.datetime.strptime(time, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    except ValueError:
        raise S3Error("AccessDenied", "AWS authentication requires a valid Date or x-amz-date header") from None
    age_s = (datetime.datetime.now(datetime.UTC) - signed).total_seconds()
    if claim.expires_s is not None:
        if age_s > claim.expires_s:
            raise S3Error("AccessDenied", "Request has expired")
        if age_s < -SKEW_MAX_S:
            raise S3Error("AccessDenied", "Request is not yet valid")
    elif abs(age_s) > SKEW_MAX_S:
        raise S3Error("RequestTimeTooSkewed")
    if claim.scope.day != time[:8]:
        raise S3Error("SignatureDoesNotMatch")
