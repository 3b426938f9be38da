"""Requests as boto3 does not send them: headers that are wrong or missing, chunks, presigned URLs, hosts of buckets."""

import base64
import datetime
import hashlib
import re
import socket
import time
import zlib
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from storage_cluster.s3.chunks import SIGNED, SIGNED_TRAILER, UNSIGNED_TRAILER, ChunkSigner, frame, split_chunks
from storage_cluster.s3.signatures import (
    UNSIGNED_PAYLOAD,
    Credentials,
    Scope,
    SignableRequest,
    encode_path,
    presigned_query,
    signed_headers,
)
from tests.helpers.s3_answers import answer_of

USER = Credentials("test:tester", "testing")
Headers = list[tuple[str, str]]
Answer = tuple[int, str, bytes]


class Wire:
    """Sends requests byte by byte to the gateway."""

    def __init__(self, url: str) -> None:
        self.host = urlsplit(url).netloc
        self._address = (urlsplit(url).hostname or "", urlsplit(url).port or 0)

    def raw(self, data: bytes, *, ends: bool = False) -> Answer:
        """Status, S3's code and the whole answer to some bytes. `ends`: no more will be sent."""
        with socket.create_connection(self._address, timeout=10) as connection:
            connection.sendall(data)
            if ends:
                connection.shutdown(socket.SHUT_WR)
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
        code = re.search(rb"<Code>(.*?)</Code>", answer)
        return int(answer.split(b" ", 2)[1]), code[1].decode() if code else "", answer

    def send(
        self, method: str, target: str, headers: Headers, body: bytes = b"", **more: Any
    ) -> tuple[int, str, bytes]:
        """The same of a request; `Content-Length` only if it is among the headers."""
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
        return self.raw("\r\n".join([*lines, "Connection: close", "", ""]).encode() + body, **more)

    def sign(
        self,
        method: str,
        path: str,
        headers: Headers = (),  # type: ignore[assignment]
        payload_hash: str = UNSIGNED_PAYLOAD,
        *,
        age_s: int = 0,
        host: str = "",
        query: str = "",
    ) -> Headers:
        """The headers of a signed request. `query` is signed too."""
        own = [("Host", host or self.host), *headers]
        request = SignableRequest(method, encode_path(path), query, [(name.lower(), value) for name, value in own])
        return own + list(signed_headers(request, USER, "us-east-1", _time(age_s), payload_hash).items())


def _time(age_s: int = 0) -> str:
    moment = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age_s)
    return moment.strftime("%Y%m%dT%H%M%SZ")


@pytest.fixture(scope="module")
def wire(gateway_url: str, client: Any) -> Wire:
    client.create_bucket(Bucket="raw-requests")
    client.create_bucket(Bucket="raw-public", ACL="public-read-write")
    return Wire(gateway_url)


MD5 = base64.b64encode(hashlib.md5(b"body").digest()).decode()  # noqa: S324  S3's own


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("Content-Length", "4")], (200, "")),
        ([("Content-Length", "4"), ("Content-MD5", MD5)], (200, "")),
        ([("Content-Length", "4"), ("Content-MD5", "")], (400, "InvalidDigest")),
        ([("Content-Length", "4"), ("Content-MD5", "YWJyYWNhZGFicmE=")], (400, "InvalidDigest")),
        ([("Content-Length", "4"), ("Content-MD5", "no base64 at all")], (400, "InvalidDigest")),
        ([("Content-Length", "4"), ("Content-MD5", "rL0Y20xC+Fzt72VPzMSk2A==")], (400, "BadDigest")),
        ([("Content-Length", "4"), ("Content-Type", "")], (200, "")),
        ([("Content-Length", "4"), ("Expect", "200")], (200, "")),
        ([("Content-Length", "4"), ("Expect", "")], (200, "")),
        ([("Content-Length", "4"), ("x-amz-acl", "public-ready")], (400, "InvalidArgument")),
        ([("Content-Length", "4"), ("x-amz-storage-class", "COLD")], (400, "InvalidStorageClass")),
        ([("Content-Length", "4"), ("x-amz-meta-raw", "Hello W\u00f6rld")], (200, "")),
        ([], (411, "MissingContentLength")),
    ],
    ids=str,
)
def test_headers_of_a_put(wire: Wire, headers: Headers, expected: tuple[int, str]) -> None:
    signed = wire.sign("PUT", "/raw-requests/k", headers)
    assert wire.send("PUT", "/raw-requests/k", signed, b"body" if headers else b"")[:2] == expected


@pytest.mark.parametrize("length", ["", "-1", "4x"])
def test_a_length_is_a_number(wire: Wire, length: str) -> None:
    for path in ("/raw-requests/k", "/raw-bucket"):
        signed = wire.sign("PUT", path, [("Content-Length", length)])
        status, code, _ = wire.send("PUT", path, signed, b"body")
        assert (status, code) == (400, "InvalidRequest")


def test_metadata_may_be_unicode(wire: Wire) -> None:
    headers = [("Content-Length", "0"), ("x-amz-meta-raw", "Hello W\u00f6rld")]
    assert wire.send("PUT", "/raw-requests/u", wire.sign("PUT", "/raw-requests/u", headers))[0] == 200
    answer = wire.send("GET", "/raw-requests/u", wire.sign("GET", "/raw-requests/u"))[2]
    assert "x-amz-meta-raw: hello w\u00f6rld" in answer.decode().lower()


@pytest.mark.parametrize("path", ["/raw-requests/k", "/raw-bucket"])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("Authorization", None), (403, "AccessDenied")),
        (("Authorization", ""), (403, "AccessDenied")),
        (("Authorization", "AWS HAHAHA"), (400, "InvalidRequest")),
        (("Authorization", "Basic abc"), (400, "InvalidArgument")),
        (("Authorization", "AWS4-HMAC-SHA256 Credential=HAHAHA"), (400, "AuthorizationHeaderMalformed")),
        (("x-amz-date", None), (403, "AccessDenied")),
        (("x-amz-date", "yesterday"), (403, "AccessDenied")),
        (("x-amz-content-sha256", "abc"), (400, "InvalidArgument")),
        (("x-amz-content-sha256", hashlib.sha256(b"x").hexdigest()), (403, "SignatureDoesNotMatch")),
    ],
    ids=str,
)
def test_a_request_is_signed_as_a_whole(
    wire: Wire, path: str, change: tuple[str, str | None], expected: tuple[int, str]
) -> None:
    signed = dict(wire.sign("PUT", path, [("Content-Length", "0")]))
    signed = {name: value for name, value in signed.items() if name != change[0]}
    headers = [*signed.items(), *([(change[0], change[1])] if change[1] is not None else [])]
    assert wire.send("PUT", path, headers)[:2] == expected


@pytest.mark.parametrize(("age_s", "code"), [(0, ""), (800, ""), (-800, ""), (1000, "X"), (-1000, "X"), (10**8, "X")])
def test_a_signature_is_of_now(wire: Wire, age_s: int, code: str) -> None:
    expected = (403, "RequestTimeTooSkewed") if code else (200, "")
    assert wire.send("GET", "/raw-requests", wire.sign("GET", "/raw-requests", age_s=age_s))[:2] == expected


def test_a_signature_may_be_dated_by_date(wire: Wire) -> None:
    """As old clients do; it must be the time that was signed."""
    signed = dict(wire.sign("GET", "/raw-requests"))
    moment = datetime.datetime.strptime(signed.pop("x-amz-date"), "%Y%m%dT%H%M%SZ")
    signed["Date"] = moment.strftime("%a, %d %b %Y %H:%M:%S GMT")
    assert wire.send("GET", "/raw-requests", list(signed.items()))[0] in (200, 403)
    signed["Date"] = "Tue, 07 Jul 2009 21:53:04 GMT"
    assert wire.send("GET", "/raw-requests", list(signed.items()))[0] == 403


def presigned_target(wire: Wire, path: str, *, age_s: int = 0, expires_s: int = 60, method: str = "GET") -> str:
    request = SignableRequest(method, encode_path(path), "", [("host", wire.host)])
    return f"{encode_path(path)}?{presigned_query(request, USER, 'us-east-1', _time(age_s), expires_s)}"


def test_a_presigned_url(wire: Wire) -> None:
    host = [("Host", wire.host)]
    target = presigned_target(wire, "/raw-requests/p", method="PUT")
    assert wire.send("PUT", target, [*host, ("Content-Length", "2")], b"ok")[:2] == (200, "")
    target = presigned_target(wire, "/raw-requests/p")
    assert wire.send("GET", target, host)[2].endswith(b"ok")
    assert wire.send("DELETE", target, host)[:2] == (403, "SignatureDoesNotMatch")
    assert wire.send("GET", target.replace("/p?", "/q?"), host)[:2] == (403, "SignatureDoesNotMatch")
    assert wire.send("GET", f"{target}&versionId=null", host)[:2] == (403, "SignatureDoesNotMatch")
    old = presigned_target(wire, "/raw-requests/p", age_s=70)
    assert wire.send("GET", old, host)[:2] == (403, "AccessDenied")
    unborn = presigned_target(wire, "/raw-requests/p", age_s=-1000)
    assert wire.send("GET", unborn, host)[:2] == (403, "AccessDenied")
    for expires in ("0", "-7", "609901", "x"):
        changed = target.replace("X-Amz-Expires=60", f"X-Amz-Expires={expires}")
        assert wire.send("GET", changed, host)[:2] == (400, "AuthorizationQueryParametersError")


def test_a_presigned_url_allows_no_more_than_it_says(wire: Wire) -> None:
    target = presigned_target(wire, "/raw-requests/p", method="PUT")
    headers = [("Host", wire.host), ("Content-Length", "2"), ("x-amz-acl", "public-read")]
    status, code, answer = wire.send("PUT", target, headers, b"no")
    assert (status, code) == (403, "AccessDenied")
    assert b"<HeadersNotSigned>x-amz-acl</HeadersNotSigned>" in answer


def test_version_2_is_refused_by_name(wire: Wire) -> None:
    target = f"/raw-requests/p?AWSAccessKeyId=test%3Atester&Signature=abc&Expires={int(time.time()) + 60}"
    status, code, answer = wire.send("GET", target, [("Host", wire.host)])
    assert (status, code) == (400, "InvalidRequest")
    assert b"AWS4-HMAC-SHA256" in answer


@pytest.mark.parametrize("host", ["raw-requests.s3.localhost", "raw-requests.s3.localhost:80", "s3.localhost"])
def test_a_bucket_may_be_in_the_host(wire: Wire, host: str) -> None:
    path = "/in-host" if host.startswith("raw") else "/raw-requests/in-host"
    signed = wire.sign("PUT", path, [("Content-Length", "1")], host=host)
    assert wire.send("PUT", path, signed, b"1")[:2] == (200, "")
    assert wire.send("GET", path, wire.sign("GET", path, host=host))[2].endswith(b"1")
    bucket = path.rpartition("/")[0] or "/"
    assert b"<Key>in-host</Key>" in wire.send("GET", bucket, wire.sign("GET", bucket, host=host))[2]


@pytest.mark.parametrize("path", ["/raw-requests/%ff%fe", "/raw-requests/a%00b", "/%ff", "/%00versions%00raw-requests"])
def test_a_path_is_utf_8(wire: Wire, path: str) -> None:
    status, code, answer = wire.send("GET", path, [("Host", wire.host)])
    assert (status, code) == (400, "InvalidURI")
    assert b"<RequestId>tx" in answer and b"x-amz-request-id: tx" in answer


@pytest.mark.parametrize("public", [False, True])
def test_100_continue_only_where_the_body_is_wanted(wire: Wire, public: bool) -> None:
    bucket = "raw-public" if public else "raw-requests"
    lines = f"PUT /{bucket}/k HTTP/1.1\r\nHost: {wire.host}\r\nContent-Length: 4\r\nExpect: 100-continue\r\n"
    answer = wire.raw(f"{lines}Connection: close\r\n\r\n".encode() + (b"body" if public else b""))[2]
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200" if public else b"HTTP/1.1 403")


def test_a_body_without_a_length_may_come_in_http_chunks(wire: Wire) -> None:
    signed = wire.sign("PUT", "/raw-requests/chunked", [("Transfer-Encoding", "chunked")])
    assert wire.send("PUT", "/raw-requests/chunked", signed, b"3\r\nbar\r\n0\r\n\r\n")[:2] == (200, "")
    found = wire.send("GET", "/raw-requests/chunked", wire.sign("GET", "/raw-requests/chunked"))[2]
    assert found.endswith(b"\r\n\r\nbar")


def test_a_body_that_breaks_off_is_not_kept(wire: Wire, client: Any) -> None:
    signed = wire.sign("PUT", "/raw-requests/broken", [("Content-Length", "10")])
    assert wire.send("PUT", "/raw-requests/broken", signed, b"body", ends=True)[0] != 200
    assert answer_of(client.head_object, Bucket="raw-requests", Key="broken") == (404, "404")


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ("sha256", "XAmzContentSHA256Mismatch"),
        ("Content-MD5", "BadDigest"),
        ("x-amz-checksum-crc32", "BadDigest"),
        ("x-amz-checksum-sha256", "BadDigest"),
    ],
)
def test_nothing_is_kept_of_a_body_that_is_not_as_announced(wire: Wire, client: Any, wrong: str, code: str) -> None:
    path = f"/raw-requests/{wrong}"
    other = {"Content-MD5": "rL0Y20xC+Fzt72VPzMSk2A==", "x-amz-checksum-crc32": crc32_of(b"x")}
    other["x-amz-checksum-sha256"] = base64.b64encode(hashlib.sha256(b"x").digest()).decode()
    headers = [("Content-Length", "4"), *([(wrong, other[wrong])] if wrong in other else [])]
    payload_hash = UNSIGNED_PAYLOAD if wrong in other else hashlib.sha256(b"x").hexdigest()
    assert wire.send("PUT", path, wire.sign("PUT", path, headers, payload_hash), b"body")[:2] == (400, code)
    assert answer_of(client.head_object, Bucket="raw-requests", Key=wrong) == (404, "404")


BODY = b"0123456789" * 10
FORMS = {"signed": SIGNED, "signed trailer": SIGNED_TRAILER, "unsigned trailer": UNSIGNED_TRAILER}


def chunked_request(wire: Wire, key: str, form: str, trailers: list[tuple[str, str]]) -> tuple[Headers, bytes]:
    """Headers and body of an upload in chunks of 40 bytes."""
    headers = [("x-amz-decoded-content-length", str(len(BODY))), ("Content-Encoding", "aws-chunked")]
    headers += [("x-amz-trailer", name) for name, _ in trailers]
    signed = wire.sign("PUT", f"/raw-requests/{key}", headers, FORMS[form])
    values = dict(signed)
    scope = Scope(values["x-amz-date"][:8], "us-east-1")
    seed = values["Authorization"][-64:]
    signer = None if form == "unsigned trailer" else ChunkSigner(USER.secret_key, scope, values["x-amz-date"], seed)
    body = b"".join(frame(split_chunks([memoryview(BODY)], 40), signer, trailers))
    return [*signed, ("Content-Length", str(len(body)))], body


def crc32_of(data: bytes) -> str:
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


@pytest.mark.parametrize(
    ("form", "change", "expected"),
    [
        ("signed", None, (200, "")),
        ("signed trailer", None, (200, "")),
        ("unsigned trailer", None, (200, "")),
        ("signed", (b"0123", b"9123"), (403, "SignatureDoesNotMatch")),
        ("signed", (b"signature=", b"signature=0"), (403, "SignatureDoesNotMatch")),
        ("signed", (b"\r\n0;chunk-signature=", b"\r\n0;chunk-signature=0"), (403, "SignatureDoesNotMatch")),
        ("signed trailer", (b"0123", b"9123"), (403, "SignatureDoesNotMatch")),
        ("signed trailer", (b"trailer-signature:", b"trailer-signature:0"), (403, "SignatureDoesNotMatch")),
        ("unsigned trailer", (b"0123", b"9123"), (400, "BadDigest")),
        ("unsigned trailer", (b"28\r\n", b"29\r\n"), (400, "IncompleteBody")),
        ("unsigned trailer", (b"x-amz-checksum-crc32:", b"x-amz-checksum-crc32:x"), (400, "InvalidRequest")),
        ("unsigned trailer", (b"0\r\nx-amz", b"zz\r\nx-amz"), (400, "IncompleteBody")),
    ],
    ids=str,
)
def test_uploads_in_chunks(
    wire: Wire, client: Any, form: str, change: tuple[bytes, bytes] | None, expected: tuple[int, str]
) -> None:
    key = f"{form}{change}".translate({ord(one): None for one in " \\'(),:"})[:40]
    trailers = [] if form == "signed" else [("x-amz-checksum-crc32", crc32_of(BODY))]
    headers, body = chunked_request(wire, quote(key), form, trailers)
    if change is not None:
        assert change[0] in body
        body = body.replace(*change, 1)
        headers = [*headers[:-1], ("Content-Length", str(len(body)))]
    assert wire.send("PUT", f"/raw-requests/{quote(key)}", headers, body)[:2] == expected
    if change is None:
        found = client.get_object(Bucket="raw-requests", Key=quote(key), ChecksumMode="ENABLED")
        assert found["Body"].read() == BODY
        assert found.get("ChecksumCRC32") == (None if form == "signed" else crc32_of(BODY))
        assert "ContentEncoding" not in found
    else:
        assert answer_of(client.head_object, Bucket="raw-requests", Key=quote(key)) == (404, "404")


def test_a_chunk_that_breaks_off_is_not_kept(wire: Wire, client: Any) -> None:
    headers, body = chunked_request(wire, "cut", "signed", [])
    assert wire.send("PUT", "/raw-requests/cut", headers, body[:-100], ends=True)[0] != 200
    short = [*headers[:-1], ("Content-Length", str(len(body) - 100))]
    assert wire.send("PUT", "/raw-requests/cut", short, body[:-100])[:2] == (400, "IncompleteBody")
    assert answer_of(client.head_object, Bucket="raw-requests", Key="cut") == (404, "404")


def test_an_error_names_the_request(wire: Wire) -> None:
    answer = wire.send("GET", "/raw-requests/none", wire.sign("GET", "/raw-requests/none"))[2].decode()
    request_id = re.search(r"x-amz-request-id: (\S+)", answer)
    assert request_id and f"<RequestId>{request_id[1]}</RequestId>" in answer
    assert "<Resource>/raw-requests/none</Resource>" in answer
