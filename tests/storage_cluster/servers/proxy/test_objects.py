"""Objects as a client sees them, over sockets. Expected answers are those that Swift 2.30 gave."""

import hashlib
import json
import time

import pytest

from testkit.loopback_store import Client, LoopbackStore
from tests.helpers.polling import wait_for

TEN = b"0123456789"


@pytest.fixture(scope="module")
def client(shared_store: LoopbackStore) -> Client:
    made = Client(shared_store)
    assert made("PUT c").status in (201, 202)
    assert made("PUT c/ten", {"Content-Type": "text/plain", "X-Object-Meta-A": "b"}, TEN).status == 201
    return made


def test_the_headers_of_an_object(client: Client) -> None:
    kept = {
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Encoding": "gzip",
        "Content-Disposition": "attachment",
        "Content-Language": "en",
        "Cache-Control": "max-age=5",
        "Expires": "Thu, 01 Dec 2036 16:00:00 GMT",
        "X-Robots-Tag": "noindex",
        "X-Delete-At": str(int(time.time()) + 1000),
        "X-Object-Meta-Foo": "bar",
    }
    internal = {"X-Foo": "x", "X-Object-Sysmeta-A": "x", "X-Object-Transient-Sysmeta-B": "y", "X-Timestamp": "1.0"}
    assert client("PUT c/o", kept | internal, b"abc").status == 201
    found = client("HEAD c/o").headers
    described = {"etag": hashlib.md5(b"abc").hexdigest(), "accept-ranges": "bytes", "content-length": "3"}
    hidden = ("date", "server", "x-trans-id", "x-openstack-request-id", "last-modified", "x-timestamp", "connection")
    shown = {name: value for name, value in found.items() if name not in hidden}
    assert shown == {name.lower(): value for name, value in kept.items()} | described
    assert abs(float(found["x-timestamp"]) - time.time()) < 60
    assert client("POST c/o", {"X-Object-Meta-New_One": "1", "Content-Type": "x/y"}).status == 202
    assert client("POST c/o", {"X-Object-Meta-New_One": "2"}).status == 202
    found = client("HEAD c/o").headers
    assert (found["content-type"], found["x-object-meta-new-one"]) == ("x/y", "2")
    assert not {"x-object-meta-foo", "x-delete-at", "content-encoding"} & set(found)


@pytest.mark.parametrize(
    ("asked", "status", "body", "header", "value"),
    [
        ({"Range": "bytes=0-3"}, 206, b"0123", "content-range", "bytes 0-3/10"),
        ({"Range": "bytes=-3"}, 206, b"789", "content-length", "3"),
        ({"Range": "bytes=20-"}, 416, None, "content-range", "bytes */10"),
        ({"Range": "bytes=3-1"}, 200, TEN, "content-length", "10"),
        ({"Range": "bytes=0-1", "If-Range": '"x"'}, 206, b"01", "content-type", "text/plain"),
        ({"If-None-Match": "*"}, 304, b"", "etag", hashlib.md5(TEN).hexdigest()),
        ({"If-Match": "x"}, 412, b"", "x-object-meta-a", "b"),
        ({"If-Match": "x", "Range": "bytes=90-"}, 412, b"", "content-type", "text/html; charset=UTF-8"),
    ],
)
def test_parts_and_conditions(
    client: Client, asked: dict[str, str], status: int, body: bytes | None, header: str, value: str
) -> None:
    answer = client("GET c/ten", asked)
    assert (answer.status, answer.headers[header]) == (status, value)
    assert body is None or answer.body == body


def test_several_ranges(client: Client) -> None:
    answer = client("GET c/ten", {"Range": "bytes=0-0,5-6"})
    assert (answer.status, answer.headers["content-length"]) == (206, str(len(answer.body)))
    assert [part.split(b"\r\n\r\n")[-1] for part in answer.body.split(b"\r\n--")] == [
        *(b"0", b"56"),
        answer.headers["content-type"].partition("boundary=")[2].encode() + b"--",
    ]


@pytest.mark.parametrize(
    ("line", "headers", "status", "text"),
    [
        ("PUT c/x", {"If-None-Match": "x"}, 400, "If-None-Match only supports *"),
        ("PUT c/ten", {"If-None-Match": "*"}, 412, None),
        ("PUT c/x", {"Etag": "0" * 32}, 422, None),
        ("PUT c/x", {"X-Delete-At": "junk"}, 400, "Non-integer X-Delete-At"),
        ("PUT c/x", {"X-Delete-At": "1000"}, 400, "X-Delete-At in past"),
        ("POST c/ten", {"X-Delete-After": "-1"}, 400, "X-Delete-After in past"),
        ("POST c/ten", {"X-Delete-After": "1.5"}, 400, "Non-integer X-Delete-After"),
        ("PUT c/x", {"Content-Type": "a/b; swift_bytes=5"}, 400, "Invalid Content-Type, swift_* is not a valid"),
        ("PUT c/x", {"X-Object-Meta-" + "a" * 129: "x"}, 400, "Metadata name too long: x-object-meta-Aaa"),
        ("PUT c/x", {"X-Object-Meta-A": "x" * 257}, 400, "Metadata value longer than 256: x-object-meta-A"),
        ("POST c/ten", {"X-Object-Meta-": "x"}, 400, "Metadata name cannot be empty"),
        ("PUT c/x", {f"X-Object-Meta-{n}": "x" for n in range(91)}, 400, "Too many metadata items; max 90"),
        ("PUT c/x", {f"X-Object-Meta-{n}": "x" * 100 for n in range(45)}, 400, "Total metadata too large; max 4096"),
        ("PUT c/x", {"X-Object-Manifest": "nothing"}, 400, "X-Object-Manifest must be in the format"),
        ("PUT c/" + "o" * 1025, {}, 400, "Object name length of 1025 longer than 1024"),
        ("GET c/x", {"If-Match": "*"}, 412, ""),
        ("GET c/x", {"If-Match": "x"}, 404, None),
        ("GET c/x", {"If-None-Match": "*"}, 404, None),
    ],
)
def test_what_is_refused(client: Client, line: str, headers: dict[str, str], status: int, text: str | None) -> None:
    answer = client(line, headers, b"x" if line.startswith("PUT") else None)
    assert answer.status == status
    assert text is None or answer.body.decode()[: len(text) or 1] == text
    assert client("GET c/x").status == 404


def test_metadata_of_objects_are_bytes(client: Client) -> None:
    for value in ("\xe9", "caf\xc3\xa9"):  # as http.client writes and reads them: one character a byte
        assert client("PUT c/bytes", {"X-Object-Meta-A": value}, b"x").status == 201
        assert client("HEAD c/bytes").headers["x-object-meta-a"] == value


@pytest.mark.parametrize(
    ("name", "headers", "content_type"),
    [
        ("a.txt", {}, "text/plain"),
        ("a.tar.gz", {}, "application/x-tar"),
        ("noext", {}, "application/octet-stream"),
        ("a.jpg", {"Content-Type": ""}, "image/jpeg"),
        ("a.png", {"Content-Type": "x/y", "X-Detect-Content-Type": "true"}, "image/png"),
        ("b", {"Content-Type": 'text/plain;charset=UTF-8;param="x y"'}, 'text/plain;charset=UTF-8;param="x y"'),
    ],
)
def test_content_types(client: Client, name: str, headers: dict[str, str], content_type: str) -> None:
    client(f"PUT c/types/{name}", headers, b"x")
    assert client(f"HEAD c/types/{name}").headers["content-type"] == content_type


def test_an_object_that_has_expired_is_not_there_and_waits_in_the_queue(
    client: Client, shared_store: LoopbackStore
) -> None:
    due = str(int(time.time()) + 4)  # so late that it has not passed when the server gets to it
    assert client("PUT c/mayfly", {"X-Delete-At": due}, b"x").status == 201
    assert client("HEAD c/mayfly").status == 200
    time.sleep(max(int(due) - time.time() - 0.1, 0))
    wait_for(lambda: client("HEAD c/mayfly").status != 200, "the object to expire")
    assert int(due) <= time.time()
    assert [client(f"{method} c/mayfly").status for method in ("GET", "HEAD", "POST")] == [404] * 3
    assert "mayfly" in client("GET c").body.decode()
    assert list_queue(shared_store) == [f"{due}-AUTH_test/c/mayfly"]
    assert client("DELETE c/mayfly").status == 404
    assert "mayfly" not in client("GET c").body.decode()
    assert list_queue(shared_store) == []


def list_queue(store: LoopbackStore) -> list[str]:
    """What the expirer finds about mayflies, read from the container servers' own listings."""
    found = set()
    for file in store.root.glob("data/*/*/containers/*/*/*/*.db"):
        partition, device, host = file.parts[-4], file.parts[-6], file.parts[-7]
        for container in queue_containers(store):
            path = f"/{device}/{partition}/.expiring_objects/{container}?format=json"
            answer = store.ask("GET", path, service="container", host=host)
            if answer.status == 200:
                found |= {entry["name"] for entry in json.loads(answer.body) if "mayfly" in entry["name"]}
    return sorted(found)


def queue_containers(store: LoopbackStore) -> set[str]:
    """The names of all containers that servers received for the expiry queue."""
    paths = [line["path"] for line in store.log("container") if "/.expiring_objects/" in line["path"]]
    return {path.partition("/.expiring_objects/")[2].partition("/")[0].partition("?")[0] for path in paths} - {""}


def test_a_deletion_for_one_moment_is_of_that_moments_object_only(client: Client) -> None:
    client("PUT due")
    client("PUT due/o", {"X-Delete-At": "4102444800"}, b"x")
    client("PUT due/never", body=b"x")
    for path, moment, status in (
        ("due/o", "bad", 400),
        ("due/none", "bad", 400),
        ("due/o", "4102444801", 412),
        ("due/never", "4102444800", 412),
        ("due/none", "4102444800", 404),
        ("due/o", "4102444800", 204),
        ("due/never", "0", 204),
    ):
        assert client(f"DELETE {path}", {"X-If-Delete-At": moment}).status == status, (path, moment)
