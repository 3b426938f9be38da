"""Symlinks, over sockets. Expected answers are those that Swift 2.30 gave."""

import hashlib
import json

import pytest

from testkit.loopback_store import Client, LoopbackStore

HELLO = hashlib.md5(b"hello").hexdigest()
EMPTY = hashlib.md5().hexdigest()
TARGET = "/v1/AUTH_test/link-to/target"


@pytest.fixture(scope="module")
def client(shared_store: LoopbackStore) -> Client:
    made = Client(shared_store)
    for container in ("link", "link-to"):
        assert made(f"PUT {container}").status == 201
    made("PUT link-to/target", {"Content-Type": "text/plain", "X-Object-Meta-T": "1"}, b"hello")
    headers = {"X-Symlink-Target": "link-to/target", "X-Object-Meta-L": "1"}
    assert made("PUT link/plain", headers, b"").status == 201
    assert made("PUT link/static", headers | {"X-Symlink-Target-Etag": f'"{HELLO}"'}, b"").status == 201
    for name, target in (("one", "link/plain"), ("two", "link/one"), ("a", "link/b"), ("b", "link/a")):
        assert made(f"PUT link/{name}", {"X-Symlink-Target": target}, b"").status == 201
    return made


@pytest.mark.parametrize(
    ("asked", "status", "body"),
    [
        ({}, 200, b"hello"),
        ({"Range": "bytes=1-2"}, 206, b"el"),
        ({"If-Match": HELLO}, 200, b"hello"),
        ({"If-None-Match": HELLO}, 304, b""),
        ({"If-None-Match": EMPTY}, 200, b"hello"),
        ({"If-Match": "x"}, 412, b""),
    ],
)
@pytest.mark.parametrize("name", ["plain", "static", "one"])
def test_reading_goes_to_the_target(client: Client, name: str, asked: dict[str, str], status: int, body: bytes) -> None:
    found = client(f"GET link/{name}", asked)
    assert (found.status, found.body, found.headers["content-location"]) == (status, body, TARGET)
    assert (found.headers["x-object-meta-t"], found.headers["etag"]) == ("1", HELLO)


def test_the_link_itself(client: Client) -> None:
    plain = client("HEAD link/plain?symlink=get").headers
    assert (plain["content-type"], plain["content-length"], plain["etag"]) == ("application/symlink", "0", EMPTY)
    assert (plain["x-symlink-target"], plain["x-object-meta-l"]) == ("link-to/target", "1")
    assert not any("sysmeta" in name for name in plain)
    static = client("GET link/static?symlink=get").headers
    assert (static["x-symlink-target-etag"], static["x-symlink-target-bytes"]) == (HELLO, "5")
    assert static["content-type"] == "text/plain"
    (listed,) = json.loads(client("GET link?format=json&prefix=static").body)
    assert (listed["symlink_etag"], listed["symlink_bytes"], listed["symlink_path"]) == (HELLO, 5, TARGET)
    assert (listed["hash"], listed["bytes"]) == (EMPTY, 0)


@pytest.mark.parametrize("name", ["two", "a"])
def test_too_many_links(client: Client, name: str) -> None:
    found = client(f"GET link/{name}")
    assert (found.status, found.body) == (409, b"Too many levels of symbolic links, maximum allowed is 2")


@pytest.mark.parametrize(
    ("headers", "body", "status", "text"),
    [
        ({"X-Symlink-Target": "bad"}, b"", 412, "X-Symlink-Target header must be of the form"),
        ({"X-Symlink-Target": ""}, b"", 412, "X-Symlink-Target header must be of the form"),
        ({"X-Symlink-Target": "/link-to/target"}, b"", 412, "X-Symlink-Target header must be of the form"),
        ({"X-Symlink-Target": "link-to/target"}, b"x", 400, "Symlink requests require a zero byte body"),
        ({"X-Symlink-Target": "link/new"}, b"", 400, "Symlink cannot target itself"),
        (
            {"X-Symlink-Target": "link-to/target", "X-Symlink-Target-Account": "a/b"},
            b"",
            412,
            "Account name cannot contain slashes",
        ),
        (
            {"X-Symlink-Target": "link-to/target", "X-Symlink-Target-Etag": "x"},
            b"",
            409,
            f"Object Etag '{HELLO}' does not match X-Symlink-Target-Etag header 'x'",
        ),
        (
            {"X-Symlink-Target": "link-to/absent", "X-Symlink-Target-Etag": HELLO},
            b"",
            409,
            "X-Symlink-Target does not exist",
        ),
    ],
)
def test_links_that_cannot_be(client: Client, headers: dict[str, str], body: bytes, status: int, text: str) -> None:
    answer = client("PUT link/new", headers, body)
    assert (answer.status, answer.body.decode()[: len(text)]) == (status, text)
    assert client("HEAD link/new?symlink=get").status == 404


def test_a_link_to_nothing_and_one_to_another_account(client: Client) -> None:
    client("PUT link/dangling", {"X-Symlink-Target": "link-to/absent"}, b"")
    assert client("GET link/dangling").status == 404
    other = {"X-Symlink-Target": "link-to/target", "X-Symlink-Target-Account": "AUTH_other"}
    assert client("PUT link/other", other, b"").status == 201
    assert client("GET link/other").status == 403
    assert client("HEAD link/other?symlink=get").headers["x-symlink-target-account"] == "AUTH_other"


def test_a_static_link_holds_only_for_what_was_there(client: Client) -> None:
    client("PUT link-to/changing", body=b"hello")
    client("PUT link/old", {"X-Symlink-Target": "link-to/changing", "X-Symlink-Target-Etag": HELLO}, b"")
    assert client("GET link/old").body == b"hello"
    client("PUT link-to/changing", body=b"changed")
    assert client("GET link/old").status == 409


def test_post_delete_and_copy(client: Client) -> None:
    client("PUT link/p", {"X-Symlink-Target": "link-to/target"}, b"")
    posted = client("POST link/p", {"X-Object-Meta-P": "1"})
    assert (posted.status, posted.headers["location"]) == (307, TARGET)
    assert client("HEAD link/p?symlink=get").headers["x-object-meta-p"] == "1"
    assert client("POST link/p", {"X-Symlink-Target": "link-to/target"}).status == 400
    client("COPY link/p", {"Destination": "link/copied"})
    assert "x-symlink-target" not in client("HEAD link/copied?symlink=get").headers
    client("COPY link/p?symlink=get", {"Destination": "link/copied"})
    assert client("HEAD link/copied?symlink=get").headers["x-symlink-target"] == "link-to/target"
    assert client("DELETE link/p").status == 204
    assert client("GET link-to/target").body == b"hello"


def test_a_static_link_is_compared_with_what_it_points_to_itself(client: Client) -> None:
    client("PUT link/inner", {"X-Symlink-Target": "link-to/target"}, b"")
    to_inner = {"X-Symlink-Target": "link/inner"}
    assert client("PUT link/outer", to_inner | {"X-Symlink-Target-Etag": HELLO}, b"").status == 409
    assert client("PUT link/outer", to_inner | {"X-Symlink-Target-Etag": EMPTY}, b"").status == 201
    assert client("GET link/outer").body == b"hello"
    to_static = {"X-Symlink-Target": "link/static", "X-Symlink-Target-Etag": HELLO}
    assert client("PUT link/outer", to_static, b"").status == 201
    assert client("GET link/outer").body == b"hello"


def test_a_static_link_to_a_large_object_names_the_manifests_etag(client: Client) -> None:
    client("PUT link-to/large?multipart-manifest=put", body=json.dumps([{"path": "/link-to/target"}]).encode())
    head = client("HEAD link-to/large?multipart-manifest=get").headers
    whole = client("HEAD link-to/large").headers["etag"]
    asked = {"X-Symlink-Target": "link-to/large"}
    assert client("PUT link/large", asked | {"X-Symlink-Target-Etag": whole.strip('"')}, b"").status == 409
    assert client("PUT link/large", asked | {"X-Symlink-Target-Etag": head["etag"]}, b"").status == 201
    (listed,) = json.loads(client("GET link?format=json&prefix=large").body)
    assert (listed["slo_etag"], listed["symlink_bytes"], listed["symlink_etag"]) == (whole, 5, head["etag"].strip('"'))
    assert client("GET link/large").body == b"hello"
