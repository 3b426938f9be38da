"""AWS Signature Version 4 as S3 uses it: what is signed, with which key, in a header or in the query.

    request ──▶ canonical request ──▶ string to sign ──▶ signature
                                     signing key (of a day, region and service) ──┘

A client signs (`signed_headers`, `presigned_query`); a server reads what a request claims (`claim_of_header`,
`claim_of_query`) and computes the signature that it should have (`expected_signature`). Both use the same functions.

Algorithm:
1. Path: decode, encode again, `/` kept; nothing is normalised, so `..` and `//` stay (S3's exception from SigV4).
2. Query: decode each name and value, encode again, sort; `+` is a space, as in S3, MinIO and Ceph.
3. Headers: names in lower case, sorted; values without outer blanks, inner runs of blanks as one.
4. Canonical request: method, path, query, headers, their names, hash of the payload; each on its line.
5. String to sign: algorithm, time, scope, SHA-256 of 4.
6. Signature: HMAC-SHA256 of 5 with the signing key, in hex.

Invariants: encoding is idempotent, so a path encoded as `encode_path` does is its own canonical form. A presigned
query's canonical form lacks `X-Amz-Signature`, and its payload is unsigned.

Not handled: SigV4A (several regions), Signature Version 2, POST policies. Whether a time is too far off, a presigned
URL has expired, or a key exists, is the server's to decide.

Source: AWS, "Signature Calculations for the Authorization Header" and "Authenticating Requests: Using Query Parameters"
(Amazon S3 API Reference, API version 2006-03-01). Judged in the tests by botocore.
"""

import dataclasses
import functools
import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from urllib.parse import quote, unquote_plus, unquote_to_bytes

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
EXPIRES_MAX_S = 604_800
"""Seven days. Source: "Authenticating Requests: Using Query Parameters", X-Amz-Expires."""

_TERMINATOR = "aws4_request"
_UNESCAPED = "-_.~"
"""Beside letters and digits (RFC 3986, section 2.3), in names and values of a query; in a path also `/`."""
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/_.~-]+")
"""Encoding leaves such a path as it is: most are, and it takes a tenth of the time to see it."""
_TIME = re.compile(r"\d{8}T\d{6}Z")
_SIGNATURE = re.compile(r"[0-9a-f]{64}")

Headers = Sequence[tuple[str, str]]
"""Names and values (UTF-8, decoded with `surrogateescape`), in any order; a name may occur several times."""


@dataclasses.dataclass(frozen=True, slots=True)
class Credentials:
    """An access key and its secret; with a session token, of a session that expires."""

    access_key: str
    secret_key: str = dataclasses.field(repr=False)
    session_token: str = dataclasses.field(default="", repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """What a signing key is for."""

    day: str  # YYYYMMDD, in UTC
    region: str
    service: str = "s3"

    @property
    def text(self) -> str:
        """As a string to sign and a credential have it."""
        return f"{self.day}/{self.region}/{self.service}/{_TERMINATOR}"


@dataclasses.dataclass(frozen=True, slots=True)
class SignableRequest:
    """The parts of a request that a signature covers, as they are on the wire."""

    method: str
    path: str  # percent-encoded, without the query
    query: str  # percent-encoded, without "?"
    headers: Headers


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """What a signed request says of its signature; nothing of it is verified yet."""

    access_key: str
    scope: Scope
    signed_names: tuple[str, ...]  # of headers, in lower case
    signature: str
    time: str = ""  # YYYYMMDDTHHMMSSZ; "": that of the header x-amz-date
    expires_s: int | None = None  # of a presigned URL, after `time`


# what both sides compute


def encode_path(path: str) -> str:
    """A path, or a key, as a target has it: each byte of its UTF-8 but `/` and unreserved ones as %XX."""
    return path if _PLAIN_PATH.fullmatch(path) else quote(path, safe="/" + _UNESCAPED)


def encode_query(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values as a query, sorted, an empty value with its `=`: already in canonical form."""
    encoded = [(_encode(name), _encode(value)) for name, value in pairs]
    return "&".join(f"{name}={value}" for name, value in sorted(encoded))


def canonical_path(path: str) -> str:
    """The path of a request's target in canonical form."""
    if _PLAIN_PATH.fullmatch(path):
        return path
    return quote(unquote_to_bytes(path), safe="/" + _UNESCAPED) or "/"


def canonical_query(query: str) -> str:
    """The query of a request's target in canonical form, a presigned one without its signature."""
    if not query:
        return ""
    pairs = [part.partition("=") for part in query.split("&") if part]
    decoded = [(_decode(name), _decode(value)) for name, _, value in pairs]
    return encode_query(pair for pair in decoded if pair[0] != "X-Amz-Signature")


def canonical_request(request: SignableRequest, signed_names: Iterable[str], payload_hash: str) -> str:
    """The canonical request. `signed_names`: of headers, in lower case; one that is missing counts as empty."""
    names = sorted(signed_names)
    values = _values(request.headers)
    lines = "".join(f"{name}:{values.get(name, '')}\n" for name in names)
    path, query = canonical_path(request.path), canonical_query(request.query)
    return f"{request.method}\n{path}\n{query}\n{lines}\n{';'.join(names)}\n{payload_hash}"


def string_to_sign(canonical: str, time: str, scope: Scope) -> str:
    """The string to sign of a canonical request at that time (YYYYMMDDTHHMMSSZ)."""
    return f"{ALGORITHM}\n{time}\n{scope.text}\n{hashlib.sha256(_bytes(canonical)).hexdigest()}"


@functools.lru_cache(maxsize=256)
def signing_key(secret_key: str, scope: Scope) -> bytes:
    """The key of a day, region and service. Cost: four HMACs at its first use."""
    key = f"AWS4{secret_key}".encode()
    for text in (scope.day, scope.region, scope.service, _TERMINATOR):
        key = hmac.digest(key, text.encode(), "sha256")
    return key


def signature(key: bytes, text: str) -> str:
    """The signature of a string to sign, in hex."""
    return hmac.digest(key, text.encode(), "sha256").hex()


# what a client does


def signed_headers(
    request: SignableRequest, credentials: Credentials, region: str, time: str, payload_hash: str
) -> dict[str, str]:
    """The headers that sign a request: `x-amz-date`, `x-amz-content-sha256`, `x-amz-security-token` if there is a
    session token, and `Authorization`. All headers of `request` are signed; it must have `host`, and none of these.

    The signature is the last 64 characters of `Authorization`: the seed of `storage_cluster.s3.chunks`.
    """
    scope = Scope(time[:8], region)
    made = {"x-amz-content-sha256": payload_hash, "x-amz-date": time}
    if credentials.session_token:
        made["x-amz-security-token"] = credentials.session_token
    request = SignableRequest(request.method, request.path, request.query, [*request.headers, *made.items()])
    names = sorted({name.lower() for name, _ in request.headers})
    text = string_to_sign(canonical_request(request, names, payload_hash), time, scope)
    signed = signature(signing_key(credentials.secret_key, scope), text)
    made["Authorization"] = (
        f"{ALGORITHM} Credential={credentials.access_key}/{scope.text}, "
        f"SignedHeaders={';'.join(names)}, Signature={signed}"
    )
    return made


def presigned_query(request: SignableRequest, credentials: Credentials, region: str, time: str, expires_s: int) -> str:
    """The query of a presigned URL, that of `request` included. All headers of `request` are signed, `host` at least.

    Raises: ValueError for a duration out of range.
    """
    if not 1 <= expires_s <= EXPIRES_MAX_S:
        raise ValueError(f"a URL may be valid for 1 to {EXPIRES_MAX_S} s, not {expires_s}")
    scope = Scope(time[:8], region)
    names = sorted({name.lower() for name, _ in request.headers})
    more = [
        ("X-Amz-Algorithm", ALGORITHM),
        ("X-Amz-Credential", f"{credentials.access_key}/{scope.text}"),
        ("X-Amz-Date", time),
        ("X-Amz-Expires", str(expires_s)),
        ("X-Amz-SignedHeaders", ";".join(names)),
    ]
    if credentials.session_token:
        more.append(("X-Amz-Security-Token", credentials.session_token))
    query = "&".join(filter(None, (canonical_query(request.query), encode_query(more))))
    canonical = canonical_request(dataclasses.replace(request, query=query), names, UNSIGNED_PAYLOAD)
    key = signing_key(credentials.secret_key, scope)
    return f"{query}&X-Amz-Signature={signature(key, string_to_sign(canonical, time, scope))}"


# what a server does


def claim_of_header(authorization: str) -> Claim:
    """What an `Authorization` header claims. Raises: ValueError, with what is wrong with it."""
    algorithm, _, rest = authorization.strip().partition(" ")
    if algorithm != ALGORITHM:
        raise ValueError(f"the signature's algorithm is {algorithm or 'missing'}; only {ALGORITHM} is supported")
    parts = dict(_assignment(part) for part in rest.split(","))
    for name in ("Credential", "SignedHeaders", "Signature"):
        if name not in parts:
            raise ValueError(f"{name} is missing")
    access_key, scope = _credential(parts["Credential"])
    return Claim(access_key, scope, _names(parts["SignedHeaders"]), _hex(parts["Signature"]))


def claim_of_query(query: str) -> Claim | None:
    """What a presigned URL's query claims; None if it is not presigned. Raises: ValueError, with what is wrong."""
    pairs = [part.partition("=") for part in query.split("&")]
    found = {_decode(name): _decode(value) for name, _, value in pairs}
    if "X-Amz-Signature" not in found and "X-Amz-Algorithm" not in found:
        return None
    for name in ("Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature"):
        if f"X-Amz-{name}" not in found:
            raise ValueError(f"X-Amz-{name} is missing")
    if found["X-Amz-Algorithm"] != ALGORITHM:
        raise ValueError(f"X-Amz-Algorithm is not {ALGORITHM}")
    time, expires = found["X-Amz-Date"], found["X-Amz-Expires"]
    if not _TIME.fullmatch(time):
        raise ValueError("X-Amz-Date is not of the form YYYYMMDDTHHMMSSZ")
    if not re.fullmatch(r"[0-9]{1,6}", expires) or not 1 <= int(expires) <= EXPIRES_MAX_S:
        raise ValueError(f"X-Amz-Expires is not a number from 1 to {EXPIRES_MAX_S}")
    access_key, scope = _credential(found["X-Amz-Credential"])
    names, signed = _names(found["X-Amz-SignedHeaders"]), _hex(found["X-Amz-Signature"])
    return Claim(access_key, scope, names, signed, time, int(expires))


def expected_signature(
    request: SignableRequest, claim: Claim, secret_key: str, payload_hash: str, time: str = ""
) -> str:
    """The signature that a request should have, to be compared in constant time (`is_same_signature`).

    `payload_hash` is the value of `x-amz-content-sha256`, of a presigned request without it `UNSIGNED_PAYLOAD`;
    `time` that of `x-amz-date` where the claim has none.
    """
    canonical = canonical_request(request, claim.signed_names, payload_hash)
    text = string_to_sign(canonical, claim.time or time, claim.scope)
    return signature(signing_key(secret_key, claim.scope), text)


def is_same_signature(first: str, second: str) -> bool:
    """Whether two signatures are equal; takes equally long whatever differs."""
    return hmac.compare_digest(first.encode(), second.encode())


def _values(headers: Headers) -> dict[str, str]:
    """Values by name in lower case, as they are signed."""
    found: dict[str, str] = {}
    for name, value in headers:
        key, text = name.lower(), " ".join(value.split())
        found[key] = f"{found[key]},{text}" if key in found else text
    return found


def _bytes(text: str) -> bytes:
    """Header values may hold any bytes: UTF-8, decoded with `surrogateescape`."""
    return text.encode(errors="surrogateescape")


def _encode(text: str) -> str:
    return quote(text, safe=_UNESCAPED, errors="surrogateescape")


def _decode(text: str) -> str:
    """A name or value of a query; bytes that are not UTF-8 are kept apart from each other."""
    return unquote_plus(text, errors="surrogateescape")


def _assignment(text: str) -> tuple[str, str]:
    name, _, value = text.strip().partition("=")
    return name, value


def _credential(text: str) -> tuple[str, Scope]:
    """ACCESS_KEY/DAY/REGION/SERVICE/aws4_request in its parts; the access key itself may contain `/`."""
    parts = text.rsplit("/", 4)
    if len(parts) != 5 or parts[4] != _TERMINATOR or not re.fullmatch(r"\d{8}", parts[1]):
        raise ValueError(f"the credential is not of the form KEY/YYYYMMDD/REGION/SERVICE/{_TERMINATOR}")
    return parts[0], Scope(*parts[1:4])


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(";"))
    if "host" not in names or text != text.lower():
        raise ValueError("the signed headers are not names in lower case with host among them")
    return names


def _hex(text: str) -> str:
    if not _SIGNATURE.fullmatch(text):
        raise ValueError("the signature is not 64 hexadecimal digits")
    return text
