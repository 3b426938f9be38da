"""Server-side copies, over sockets. Expected answers are those that Swift 2.30 gave."""

import hashlib

import pytest

from testkit.loopback_store import Client, LoopbackStore

TEN = b"0123456789"
FORM = "header must be of the form <container name>/<object name>"


@pytest.fixture(scope="module")
def client(shared_store: LoopbackStore) -> Client:
    made = Client(shared_store)
    for container in ("copy-from", "copy-to"):
        assert made(f"PUT {container}").status == 201
    described = {"Content-Type": "text/plain", "X-Object-Meta-A": "1", "Content-Encoding": "gzip", "Cache-Control": "x"}
    assert made("PUT copy-from/src", described, TEN).status == 201
    return made


@pytest.mark.parametrize(
    ("line", "headers", "body", "shown", "not_shown"),
    [
        ("COPY copy-from/src", {"Destination": "copy-to/o"}, TEN, {"x-object-meta-a": "1", "cache-control": "x"}, []),
        ("PUT copy-to/o", {"X-Copy-From": "/copy-from/%73rc"}, TEN, {"content-type": "text/plain"}, []),
        (
            "COPY copy-from/src",
            {"Destination": "/copy-to/o", "X-Object-Meta-B": "2", "Content-Type": "x/y"},
            TEN,
            {"x-object-meta-a": "1", "x-object-meta-b": "2", "content-type": "x/y", "content-encoding": "gzip"},
            [],
        ),
        (
            "PUT copy-to/o",
            {"X-Copy-From": "copy-from/src", "X-Fresh-Metadata": "true", "X-Object-Meta-B": "2", "Etag": "ignored"},
            TEN,
            {"x-object-meta-b": "2", "content-type": "text/plain"},
            ["x-object-meta-a", "content-encoding", "cache-control"],
        ),
        ("COPY copy-from/src", {"Destination": "copy-to/o", "Range": "bytes=2-4"}, b"234", {}, ["content-range"]),
        ("COPY copy-from/src", {"Destination": "copy-to/o", "Destination-Account": "AUTH_test"}, TEN, {}, []),
    ],
)
def test_what_a_copy_is(
    client: Client, line: str, headers: dict[str, str], body: bytes, shown: dict[str, str], not_shown: list[str]
) -> None:
    answer = client(line, headers)
    assert (answer.status, answer.headers["etag"]) == (201, hashlib.md5(body).hexdigest())
    assert (answer.headers["x-copied-from"], answer.headers["x-copied-from-account"]) == ("copy-from/src", "AUTH_test")
    found = client("GET copy-to/o")
    assert found.body == body
    assert {name: found.headers.get(name) for name in shown} == shown
    assert not set(not_shown) & set(found.headers)


@pytest.mark.parametrize(
    ("line", "headers", "body", "status", "text"),
    [
        ("COPY copy-from/src", {}, None, 412, "Destination header required"),
        ("COPY copy-from/src", {"Destination": "copy-to"}, None, 412, f"Destination {FORM}"),
        ("COPY copy-from/src", {"Destination": "//copy-to/x"}, None, 412, f"Destination {FORM}"),
        ("PUT copy-to/o", {"X-Copy-From": "copy-from"}, None, 412, f"X-Copy-From {FORM}"),
        (
            "COPY copy-from/src",
            {"Destination": "copy-to/o", "Destination-Account": "a/b"},
            None,
            412,
            "Account name cannot contain slashes",
        ),
        ("PUT copy-to/o", {"X-Copy-From": "copy-from/src"}, b"body", 400, "Copy requests require a zero byte body"),
        ("PUT copy-to/o", {"X-Copy-From": "copy-from/absent"}, None, 404, None),
        ("COPY copy-from/src", {"Destination": "absent/o"}, None, 404, None),
        ("PUT copy-to/o", {"X-Copy-From": "copy-from/src", "Range": "bytes=20-"}, None, 416, None),
        ("PUT copy-to/o", {"X-Copy-From": "copy-from/src", "If-Match": "x"}, None, 412, ""),
        ("COPY copy-from/src", {"Destination": "copy-to/o", "If-None-Match": "*"}, None, 304, ""),
        ("COPY copy-from/src", {"Destination": "copy-to/o", "Destination-Account": "AUTH_other"}, None, 403, None),
        ("PUT copy-to/o", {"X-Copy-From": "copy-from/src", "X-Copy-From-Account": "AUTH_other"}, None, 403, None),
        ("COPY copy-from", {"Destination": "copy-to/o"}, None, 405, None),
    ],
)
def test_what_is_refused(
    client: Client, line: str, headers: dict[str, str], body: bytes | None, status: int, text: str | None
) -> None:
    answer = client(line, headers, body)
    assert answer.status == status
    assert text is None or answer.body.decode() == text


def test_a_copy_onto_itself_changes_metadata(client: Client) -> None:
    client("PUT copy-to/self", {"X-Object-Meta-A": "1"}, TEN)
    assert client("COPY copy-to/self", {"Destination": "copy-to/self", "X-Object-Meta-B": "2"}).status == 201
    found = client("GET copy-to/self")
    assert (found.body, found.headers["x-object-meta-a"], found.headers["x-object-meta-b"]) == (TEN, "1", "2")
