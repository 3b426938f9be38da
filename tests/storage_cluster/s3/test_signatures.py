"""Signatures against botocore's on random requests: the same canonical request, the same signature, both ways."""

import dataclasses
import datetime
from unittest import mock
from urllib.parse import urlsplit

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials
from hypothesis import given
from hypothesis import strategies as st

from storage_cluster.s3 import signatures
from storage_cluster.s3.signatures import Claim, Credentials, Scope, SignableRequest

TIME = "20261125T093000Z"
NOW = datetime.datetime(2026, 11, 25, 9, 30, tzinfo=datetime.UTC)
HOST = "s3.example.net:9000"
REGION = "eu-north-1"
PAYLOAD = signatures.UNSIGNED_PAYLOAD

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
KEYS = TEXT | st.sampled_from(["..", "a/../b", "//", "a//b/", "a b+c", "~-_.", "%2F", "ä/€", "", "?&=#", "a;b"])
PAIRS = st.dictionaries(TEXT.filter(lambda name: not name.startswith("X-Amz-")), TEXT, max_size=4)
HEADERS = st.dictionaries(
    st.from_regex(r"\Ax-amz-meta-[a-z0-9-]{1,8}\Z"),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20),
    max_size=3,
)
CREDENTIALS = st.builds(
    Credentials,
    st.from_regex(r"\A[A-Za-z0-9:]{3,16}\Z"),
    st.from_regex(r"\A[A-Za-z0-9/+]{1,40}\Z"),
    st.sampled_from(["", "token/+="]),
)


def request_of(method: str, key: str, query: dict[str, str], headers: dict[str, str]) -> SignableRequest:
    path = signatures.encode_path(f"/bucket/{key}")
    return SignableRequest(method, path, signatures.encode_query(query.items()), [("host", HOST), *headers.items()])


def botocores(request: SignableRequest) -> AWSRequest:
    """The same request for botocore, signed at TIME."""
    url = f"http://{HOST}{request.path}" + (f"?{request.query}" if request.query else "")
    made = AWSRequest(method=request.method, url=url, headers=dict(request.headers))
    made.context["timestamp"] = TIME
    return made


def sign_with_botocore(signer: type, credentials: Credentials, request: AWSRequest, *more: int) -> str:
    """Signs the request; returns the canonical request."""
    token = credentials.session_token or None
    made = signer(BotoCredentials(credentials.access_key, credentials.secret_key, token), "s3", REGION, *more)
    seen = []
    canonical = made.canonical_request
    made.payload = lambda request: PAYLOAD
    made.canonical_request = lambda request: seen.append(canonical(request)) or seen[-1]
    with mock.patch("botocore.auth.get_current_datetime", lambda: NOW):
        made.add_auth(request)
    return seen[0]


@given(st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD"]), KEYS, PAIRS, HEADERS, CREDENTIALS)
def test_headers_are_signed_as_botocore_signs_them(
    method: str, key: str, query: dict[str, str], headers: dict[str, str], credentials: Credentials
) -> None:
    request = request_of(method, key, query, headers)
    theirs = botocores(request)
    canonical = sign_with_botocore(botocore.auth.S3SigV4Auth, credentials, theirs)
    ours = signatures.signed_headers(request, credentials, REGION, TIME, PAYLOAD)
    claim = signatures.claim_of_header(ours["Authorization"])
    received = dataclasses.replace(request, headers=[*request.headers, *ours.items()])
    assert signatures.canonical_request(received, claim.signed_names, PAYLOAD) == canonical
    assert ours["Authorization"] == theirs.headers["Authorization"]
    assert signatures.expected_signature(received, claim, credentials.secret_key, PAYLOAD, TIME) == claim.signature


@given(st.sampled_from(["GET", "PUT"]), KEYS, PAIRS, HEADERS, CREDENTIALS, st.integers(1, 604_800))
def test_urls_are_presigned_as_botocore_presigns_them(
    method: str, key: str, query: dict[str, str], headers: dict[str, str], credentials: Credentials, expires_s: int
) -> None:
    query = {name: text for name, text in query.items() if name}
    request = request_of(method, key, query, headers)
    theirs = botocores(request)
    canonical = sign_with_botocore(botocore.auth.S3SigV4QueryAuth, credentials, theirs, expires_s)
    ours = signatures.presigned_query(request, credentials, REGION, TIME, expires_s)
    received = dataclasses.replace(request, query=urlsplit(theirs.url).query)
    claim = signatures.claim_of_query(received.query)
    assert claim is not None
    assert signatures.canonical_request(received, claim.signed_names, PAYLOAD) == canonical
    assert claim == signatures.claim_of_query(ours)
    assert signatures.expected_signature(received, claim, credentials.secret_key, PAYLOAD) == claim.signature


def test_the_example_that_aws_publishes() -> None:
    """Amazon S3 API Reference, "Signature Calculations for the Authorization Header", example: GET Object."""
    request = SignableRequest(
        "GET", "/test.txt", "", [("Host", "examplebucket.s3.amazonaws.com"), ("Range", "bytes=0-9")]
    )
    credentials = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    made = signatures.signed_headers(request, credentials, "us-east-1", "20130524T000000Z", signatures.EMPTY_SHA256)
    assert made["Authorization"].endswith("f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")


@pytest.mark.parametrize(
    ("sent", "canonical"),
    [
        ("/b/a(b)'c*", "/b/a%28b%29%27c%2A"),
        ("/b/%7Euser", "/b/~user"),
        ("/b/a%2fb", "/b/a/b"),
        ("/b/a+b", "/b/a%2Bb"),
        ("/b//../c/", "/b//../c/"),
        ("/b/%FF", "/b/%FF"),
        ("", "/"),
    ],
)
def test_a_path_encoded_otherwise_has_the_same_canonical_form(sent: str, canonical: str) -> None:
    assert signatures.canonical_path(sent) == canonical


@pytest.mark.parametrize(
    ("sent", "canonical"),
    [
        ("uploads", "uploads="),
        ("b=2&a=1&a=0", "a=0&a=1&b=2"),
        ("prefix=a+b&x=%2B", "prefix=a%20b&x=%2B"),
        ("a=b=c", "a=b%3Dc"),
        ("p=%ff", "p=%FF"),
        ("&&a=1&", "a=1"),
    ],
)
def test_a_query_encoded_otherwise_has_the_same_canonical_form(sent: str, canonical: str) -> None:
    assert signatures.canonical_query(sent) == canonical


def test_a_header_that_occurs_twice_is_signed_as_a_list() -> None:
    request = SignableRequest("GET", "/", "", [("Host", HOST), ("X-A", " 1  2 "), ("x-a", "3"), ("X-B", "\udcff")])
    canonical = signatures.canonical_request(request, ["x-b", "x-a", "host"], PAYLOAD)
    assert canonical.splitlines()[3:6] == [f"host:{HOST}", "x-a:1 2,3", "x-b:\udcff"]
    assert len(signatures.string_to_sign(canonical, TIME, Scope("20261125", REGION)).splitlines()[-1]) == 64


GOOD = (
    f"AWS4-HMAC-SHA256 Credential=test:tester/20261125/{REGION}/s3/aws4_request, "
    f"SignedHeaders=host;x-amz-date, Signature={'0' * 64}"
)


def test_a_claim_without_blanks_after_commas_is_read_too() -> None:
    claim = Claim("test:tester", Scope("20261125", REGION), ("host", "x-amz-date"), "0" * 64)
    assert signatures.claim_of_header(GOOD) == claim
    assert signatures.claim_of_header(GOOD.replace(", ", ",")) == claim


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("AWS4-HMAC-SHA256 ", "AWS ", "algorithm is AWS"),
        ("Credential=", "Credentials=", "Credential is missing"),
        ("/aws4_request", "", "credential is not of the form"),
        ("/20261125/", "/2026/", "credential is not of the form"),
        ("host;", "", "signed headers"),
        ("x-amz-date", "X-Amz-Date", "signed headers"),
        ("000", "00g", "64 hexadecimal digits"),
        (GOOD, "", "algorithm is missing"),
    ],
)
def test_a_malformed_header_is_refused_with_the_reason(old: str, new: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        signatures.claim_of_header(GOOD.replace(old, new))


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("X-Amz-Date", "today", "X-Amz-Date"),
        ("X-Amz-Date", None, "X-Amz-Date is missing"),
        ("X-Amz-Expires", "0", "X-Amz-Expires"),
        ("X-Amz-Expires", "604801", "X-Amz-Expires"),
        ("X-Amz-Expires", "-1", "X-Amz-Expires"),
        ("X-Amz-Algorithm", "AWS4-ECDSA-P256-SHA256", "X-Amz-Algorithm"),
        ("X-Amz-Credential", "k", "credential"),
    ],
)
def test_a_malformed_query_is_refused_with_the_reason(name: str, text: str | None, problem: str) -> None:
    query = signatures.presigned_query(request_of("GET", "k", {}, {}), Credentials("k", "s"), REGION, TIME, 60)
    pairs = dict(part.split("=", 1) for part in query.split("&"))
    assert signatures.claim_of_query(query)
    if text is None:
        del pairs[name]
    else:
        pairs[name] = text
    with pytest.raises(ValueError, match=problem):
        signatures.claim_of_query("&".join(f"{key}={value}" for key, value in pairs.items()))


def test_a_query_without_a_signature_claims_nothing() -> None:
    assert signatures.claim_of_query("list-type=2") is None
    assert signatures.claim_of_query("") is None


def test_a_duration_out_of_range_is_not_signed() -> None:
    with pytest.raises(ValueError, match="604800"):
        signatures.presigned_query(request_of("GET", "k", {}, {}), Credentials("k", "s"), REGION, TIME, 604_801)


def test_a_signature_of_another_secret_differs() -> None:
    request = request_of("GET", "k", {}, {})
    claim = signatures.claim_of_query(signatures.presigned_query(request, Credentials("k", "right"), REGION, TIME, 60))
    assert claim is not None
    assert not signatures.is_same_signature(
        signatures.expected_signature(request, claim, "wrong", PAYLOAD), claim.signature
    )
    assert signatures.is_same_signature(claim.signature, "".join(claim.signature))


def test_secrets_are_not_shown() -> None:
    assert "hush" not in repr(Credentials("key", "hush", "hush"))
