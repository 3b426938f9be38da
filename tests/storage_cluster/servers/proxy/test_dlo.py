"""Dynamic large objects, over sockets. Expected answers are those that Swift 2.30 gave."""

import hashlib

import pytest

from testkit.loopback_store import Client, LoopbackStore

WHOLE = b"111112222233333"
ETAG = '"f435c18ff6a80fbc0bf364aee912a9c2"'


@pytest.fixture(scope="module")
def client(shared_store: LoopbackStore) -> Client:
    made = Client(shared_store)
    made("PUT dlo")
    for part in range(0, 15, 5):
        made(f"PUT dlo/seg/{part:02}", body=WHOLE[part : part + 5])
    headers = {"X-Object-Manifest": "dlo/seg/", "Content-Type": "text/plain", "X-Object-Meta-A": "1"}
    assert made("PUT dlo/whole", headers, b"manifest").status == 201
    return made


@pytest.mark.parametrize(
    ("asked", "status", "body"),
    [
        ({}, 200, WHOLE),
        ({"Range": "bytes=3-11"}, 206, WHOLE[3:12]),
        ({"Range": "bytes=5-9"}, 206, WHOLE[5:10]),
        ({"Range": "bytes=-4"}, 206, WHOLE[-4:]),
        ({"Range": "bytes=0-1,8-11"}, 200, WHOLE),
        ({"Range": "bytes=99-"}, 416, None),
        ({"If-Match": ETAG}, 200, WHOLE),
        ({"If-Match": hashlib.md5(b"manifest").hexdigest()}, 412, b""),
        ({"If-None-Match": ETAG}, 304, b""),
    ],
)
def test_reading(client: Client, asked: dict[str, str], status: int, body: bytes | None) -> None:
    found = client("GET dlo/whole", asked)
    assert found.status == status
    assert body is None or found.body == body
    if status < 300:
        assert (found.headers["etag"], found.headers["x-object-manifest"]) == (ETAG, "dlo/seg/")
        assert (found.headers["content-type"], found.headers["content-length"]) == ("text/plain", str(len(found.body)))


def test_head_and_the_manifest_itself(client: Client) -> None:
    head = client("HEAD dlo/whole").headers
    assert (head["content-length"], head["etag"], head["x-object-meta-a"]) == ("15", ETAG, "1")
    assert client("GET dlo/whole?multipart-manifest=get").body == b"manifest"


def test_no_segments_are_an_empty_object_and_no_container_is_none(client: Client) -> None:
    assert client("PUT dlo/none", {"X-Object-Manifest": "dlo/nothing"}, b"").status == 201
    found = client("GET dlo/none")
    assert (found.status, found.body, found.headers["etag"]) == (200, b"", f'"{hashlib.md5().hexdigest()}"')
    client("PUT dlo/lost", {"X-Object-Manifest": "absent/x"}, b"")
    assert client("GET dlo/lost").status == 404


@pytest.mark.parametrize("manifest", ["c", "c/", "/c/x", "c/x?y", "c/a&b", "c%2Fx", ""])
def test_bad_manifests(client: Client, manifest: str) -> None:
    assert client("PUT dlo/bad", {"X-Object-Manifest": manifest}, b"").status == 400


def test_copies_are_the_bytes_or_the_manifest(client: Client) -> None:
    assert client("COPY dlo/whole", {"Destination": "dlo/bytes"}).status == 201
    assert "x-object-manifest" not in client("HEAD dlo/bytes").headers
    assert client("GET dlo/bytes").body == WHOLE
    assert client("COPY dlo/whole?multipart-manifest=get", {"Destination": "dlo/again"}).status == 201
    assert client("HEAD dlo/again").headers["x-object-manifest"] == "dlo/seg/"
    assert client("GET dlo/again?multipart-manifest=get").body == b"manifest"


def test_a_post_without_the_manifest_makes_it_an_ordinary_object(client: Client) -> None:
    client("PUT dlo/posted", {"X-Object-Manifest": "dlo/seg/"}, b"manifest")
    client("POST dlo/posted", {"X-Object-Meta-B": "1"})
    assert client("GET dlo/posted").body == b"manifest"


def test_a_segment_of_others_is_not_shown_through_a_manifest(client: Client, shared_store: LoopbackStore) -> None:
    other = Client(shared_store, "other:someone", "secret")
    client("PUT dlo-open", {"X-Container-Read": "other:someone"})
    client("PUT dlo-open/whole", {"X-Object-Manifest": "dlo/seg/"}, b"")
    assert client("GET dlo-open/whole").body == WHOLE
    assert other("GET dlo-open/whole", account="AUTH_test").status == 403


def test_a_static_large_object_is_no_segment(client: Client) -> None:
    client("PUT dlo/parts/large?multipart-manifest=put", body=b'[{"path": "/dlo/seg/00"}, {"path": "/dlo/seg/05"}]')
    client("PUT dlo/of-large", {"X-Object-Manifest": "dlo/parts/"}, b"")
    assert client("GET dlo/of-large").status == 409  # its listed size is not that of the manifest which would be read
