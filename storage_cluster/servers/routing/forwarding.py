"""From a client's request to one that a store gets: whose signature it has, which headers, how its body goes on.

| the client's body | goes on |
|---|---|
| signed as a whole, or not signed | as it is, with the same hash |
| `aws-chunked` with a checksum, chunks not signed | as it is |
| `aws-chunked`, each chunk signed | verified and unframed: those signatures belong to the client's own request |
| the same with a checksum | verified, framed again without signatures |

Source: Amazon S3 API reference, "Authenticating Requests (AWS Signature Version 4)".
"""

from collections.abc import AsyncIterator
from urllib.parse import unquote_plus

from storage_cluster.s3 import chunks
from storage_cluster.s3.signatures import UNSIGNED_PAYLOAD, Credentials
from storage_cluster.servers.http.messages import Body
from storage_cluster.servers.routing.endpoint import Outgoing
from storage_cluster.servers.s3.authentication import Signed
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.payload import VerifiedBody, upload_body
from storage_cluster.servers.s3.request import Request
from storage_cluster.topology import RoutingOptions

_OF_THE_SIGNATURE = ("authorization", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token", "date")
_OF_THE_CONNECTION = (
    *("host", "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    *("content-length", "expect", "x-trans-id"),
)
_OF_THE_FRAMING = ("x-amz-decoded-content-length", "x-amz-trailer", "content-encoding")
_CHUNKED_CODING = "aws-chunked"


def outgoing_request(request: Request, signed: Signed, options: RoutingOptions) -> Outgoing:
    """The client's request as one of ours, not signed yet. Raises: S3Error."""
    is_framed_anew = signed.payload_hash in (chunks.SIGNED, chunks.SIGNED_TRAILER)
    dropped = (*_OF_THE_SIGNATURE, *_OF_THE_CONNECTION, *(_OF_THE_FRAMING if is_framed_anew else ()))
    headers = [pair for pair in request.call.headers.items() if pair[0].lower() not in dropped]
    body, payload_hash = request.call.body, signed.payload_hash
    if is_framed_anew:
        headers += _framing_headers(request, signed)
        verified = upload_body(request, signed)
        has_trailer = payload_hash == chunks.SIGNED_TRAILER
        body = Body(_frames(verified), None, verified.proceed) if has_trailer else verified
        payload_hash = chunks.UNSIGNED_TRAILER if has_trailer else UNSIGNED_PAYLOAD
    return Outgoing(
        request.call.method,
        request.address.bucket,
        request.address.key,
        _query_without_signature(request.call.target.partition("?")[2]),
        tuple(headers),
        body,
        payload_hash,
        _credentials(request, options),
    )


def _credentials(request: Request, options: RoutingOptions) -> Credentials | None:
    """Who signs what goes to the stores for a request; a request that is not signed stays so."""
    if request.requester is None:
        return None
    if options.access_key:
        return Credentials(options.access_key, options.secret_key)
    return Credentials(request.requester.id, request.requester.user.key)


def upload_size(request: Request, signed: Signed) -> int | None:
    """The size of the object in a request's body; None if it does not say. Raises: S3Error."""
    if not signed.is_streamed:
        return request.call.body.length
    text = request.headers.get("x-amz-decoded-content-length", "")
    if not text.isascii() or not text.isdigit():
        raise S3Error("MissingContentLength")
    return int(text)


def _framing_headers(request: Request, signed: Signed) -> list[tuple[str, str]]:
    """What a body that is framed anew needs of the headers that its framing had."""
    codings = [one.strip() for one in request.headers.get("Content-Encoding", "").split(",")]
    kept = ", ".join(one for one in codings if one and one.lower() != _CHUNKED_CODING)
    made = [("Content-Encoding", kept)] if kept else []
    if signed.payload_hash == chunks.SIGNED_TRAILER:
        given = ("x-amz-decoded-content-length", "x-amz-trailer")
        made += [(name, request.headers[name]) for name in given if name in request.headers]
    return made


async def _frames(body: VerifiedBody) -> AsyncIterator[bytes]:
    """A body whose chunks were signed, in chunks that are not, with its checksum behind them."""
    async for piece in body:
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
    trailers = [] if body.checksum is None else [(body.checksum.header, body.checksum.text)]
    for part in chunks.frame((), trailers=trailers):
        yield bytes(part)


def _query_without_signature(query: str) -> str:
    """A query without what made it a presigned URL."""
    return "&".join(part for part in query.split("&") if not _is_of_signature(part))


def _is_of_signature(part: str) -> bool:
    name = unquote_plus(part.partition("=")[0])
    return name.startswith("X-Amz-") and name in _SIGNATURE_PARAMETERS


_SIGNATURE_PARAMETERS = {
    f"X-Amz-{name}"
    for name in (
        "Algorithm",
        "Credential",
        "Date",
        "Expires",
        "SignedHeaders",
        "Signature",
        "Security-Token",
        "Content-Sha256",
    )
}
