"""Static large objects, over sockets. Expected answers are those that Swift 2.30 gave."""

import hashlib
import http.client
import json

import pytest

from testkit.loopback_store import Client, LoopbackStore

WHOLE = b"111112222233333"
ETAG = '"f435c18ff6a80fbc0bf364aee912a9c2"'


def segment(number: str, **more: object) -> dict[str, object]:
    return {"path": f"/slo-parts/{number}", "etag": hashlib.md5(number.encode() * 5).hexdigest(), **more}


def put(client: Client, name: str, *entries: object, headers: dict[str, str] | None = None) -> int:
    body = json.dumps(entries).encode()
    return client(f"PUT slo/{name}?multipart-manifest=put", headers, body).status


@pytest.fixture(scope="module")
def client(shared_store: LoopbackStore) -> Client:
    made = Client(shared_store)
    for container in ("slo", "slo-parts"):
        assert made(f"PUT {container}").status == 201
    for number in "1234":
        made(f"PUT slo-parts/{number}", {"Content-Type": "x/seg"}, number.encode() * 5)
    described = {"Content-Type": "text/plain", "X-Object-Meta-A": "1"}
    assert put(made, "whole", segment("1", size_bytes=5), segment("2"), segment("3"), headers=described) == 201
    return made


@pytest.mark.parametrize(
    ("asked", "status", "body"),
    [
        ({}, 200, WHOLE),
        ({"Range": "bytes=3-11"}, 206, WHOLE[3:12]),
        ({"Range": "bytes=5-9"}, 206, WHOLE[5:10]),
        ({"Range": "bytes=-4"}, 206, WHOLE[-4:]),
        ({"Range": "bytes=99-"}, 416, None),
        ({"If-Match": ETAG}, 200, WHOLE),
        ({"If-Match": ETAG, "Range": "bytes=1-2"}, 206, b"11"),
        ({"If-Match": "x"}, 412, b""),
        ({"If-None-Match": ETAG}, 304, b""),
    ],
)
def test_reading(client: Client, asked: dict[str, str], status: int, body: bytes | None) -> None:
    found = client("GET slo/whole", asked)
    assert (found.status, found.headers["etag"], found.headers["x-static-large-object"]) == (status, ETAG, "True")
    assert body is None or found.body == body
    assert not any("sysmeta" in name for name in found.headers)


def test_several_ranges(client: Client) -> None:
    found = client("GET slo/whole", {"Range": "bytes=0-1,8-11"})
    assert (found.status, int(found.headers["content-length"])) == (206, len(found.body))
    assert [part.split(b"\r\n\r\n")[-1] for part in found.body.split(b"\r\n--")][:2] == [b"11", b"2233"]


def test_head_listing_and_the_manifest_itself(client: Client) -> None:
    head = client("HEAD slo/whole").headers
    assert (head["content-length"], head["etag"], head["content-type"]) == ("15", ETAG, "text/plain")
    manifest = client("GET slo/whole?multipart-manifest=get")
    assert manifest.headers["content-type"] == "application/json; charset=utf-8"
    assert head["x-manifest-etag"] == manifest.headers["etag"] == hashlib.md5(manifest.body).hexdigest()
    assert [entry["name"] for entry in json.loads(manifest.body)] == [f"/slo-parts/{number}" for number in "123"]
    raw = json.loads(client("GET slo/whole?multipart-manifest=get&format=raw").body)
    assert raw == [segment(number, size_bytes=5) for number in "123"]
    (listed,) = json.loads(client("GET slo?format=json&prefix=whole").body)
    assert (listed["bytes"], listed["content_type"], listed["slo_etag"]) == (15, "text/plain", ETAG)
    assert listed["hash"] == head["x-manifest-etag"]


def test_ranges_data_and_large_objects_as_segments(client: Client) -> None:
    inner = {"path": "/slo/whole", "range": "2-8"}
    assert put(client, "mixed", segment("4", range="1-3"), {"data": "aGVsbG8="}, inner, segment("1")) == 201
    whole = b"444hello" + WHOLE[2:9] + b"11111"
    assert client("GET slo/mixed").body == whole
    for first in range(0, len(whole), 3):
        assert client("GET slo/mixed", {"Range": f"bytes={first}-{first + 6}"}).body == whole[first : first + 7]
    assert client("HEAD slo/mixed").headers["content-length"] == str(len(whole))


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ([{"path": "/slo-parts/absent"}], "Errors:\n/slo-parts/absent, 404 Not Found\n"),
        ([segment("1", size_bytes=9)], "Errors:\n/slo-parts/1, Size Mismatch\n"),
        ([{"path": "/slo-parts/1", "etag": "x"}], "Errors:\n/slo-parts/1, Etag Mismatch\n"),
        ([segment("1", range="7-9")], "Errors:\n/slo-parts/1, Unsatisfiable Range\n"),
        ([{"path": "/slo-parts/%31"}], "Errors:\n/slo-parts/%2531, 404 Not Found\n"),
    ],
)
def test_segments_that_are_not_as_the_manifest_says(client: Client, entries: list[object], text: str) -> None:
    answer = client("PUT slo/bad?multipart-manifest=put", {}, json.dumps(entries).encode())
    assert (answer.status, answer.body.decode(), answer.headers["content-type"]) == (400, text, "text/plain")
    assert client("GET slo/bad").status == 404


def test_etag_and_reserved_header(client: Client) -> None:
    assert put(client, "bad", segment("1"), headers={"Etag": "x"}) == 422
    assert put(client, "good", *(segment(number) for number in "123"), headers={"Etag": ETAG}) == 201
    assert client("PUT slo/bad", {"X-Static-Large-Object": "true"}, b"x").status == 400
    assert client("PUT slo/bad", {"Content-Type": "a/b;swift_bytes=7"}, b"x").status == 400


def test_post_keeps_it_and_copies_are_the_bytes_or_the_manifest(client: Client) -> None:
    put(client, "posted", segment("1"), segment("2"))
    assert client("POST slo/posted", {"Content-Type": "a/b"}).status == 202
    head = client("HEAD slo/posted").headers
    assert (head["content-length"], head["content-type"], head["x-static-large-object"]) == ("10", "a/b", "True")
    assert json.loads(client("GET slo?format=json&prefix=posted").body)[0]["bytes"] == 10
    client("COPY slo/posted", {"Destination": "slo/bytes"})
    assert "x-static-large-object" not in client("HEAD slo/bytes").headers
    assert client("GET slo/bytes").body == WHOLE[:10]
    client("COPY slo/posted?multipart-manifest=get", {"Destination": "slo/again"})
    assert client("HEAD slo/again").headers["x-static-large-object"] == "True"
    assert client("GET slo/again").body == WHOLE[:10]


def test_a_segment_that_changed_is_an_error_not_other_bytes(client: Client) -> None:
    for name in ("first", "second"):
        client(f"PUT slo-parts/{name}", body=b"12345")
    put(client, "changing", {"path": "/slo-parts/first"}, {"path": "/slo-parts/second"})
    client("PUT slo-parts/second", body=b"54321")
    with pytest.raises(http.client.IncompleteRead):
        client("GET slo/changing")
    client("DELETE slo-parts/first")
    assert client("GET slo/changing").status == 409


def test_deleting_with_the_segments(client: Client) -> None:
    for name in ("a", "b", "c"):
        client(f"PUT slo-parts/gone/{name}", body=b"12345")
    put(client, "gone-inner", {"path": "/slo-parts/gone/a"}, {"path": "/slo-parts/gone/b"})
    put(client, "gone", {"path": "/slo/gone-inner"}, {"data": "aGVsbG8="}, {"path": "/slo-parts/gone/c"})
    answer = client("DELETE slo/gone?multipart-manifest=delete")
    counts = b"Number Deleted: 5\nNumber Not Found: 0\nResponse Body: \nResponse Status: 200 OK\nErrors:\n"
    assert (answer.status, answer.body) == (200, counts)
    assert client("GET slo-parts?prefix=gone").body + client("GET slo?prefix=gone").body == b""
    absent = json.loads(client("DELETE slo/gone?multipart-manifest=delete", {"Accept": "application/json"}).body)
    assert (absent["Number Not Found"], absent["Response Status"]) == (1, "200 OK")
    client("PUT slo/plain", body=b"x")
    plain = json.loads(client("DELETE slo/plain?multipart-manifest=delete", {"Accept": "application/json"}).body)
    assert (plain["Response Status"], plain["Errors"]) == ("400 Bad Request", [["/slo/plain", "Not an SLO manifest"]])


def test_ten_manifests_deep_and_no_deeper(client: Client) -> None:
    put(client, "deep1", segment("1"))
    for level in range(2, 12):
        assert put(client, f"deep{level}", {"path": f"/slo/deep{level - 1}"}) == 201
    assert (client("GET slo/deep10").status, client("GET slo/deep11").status) == (200, 409)


def test_a_version_is_deleted_with_its_own_segments(client: Client) -> None:
    client("PUT slo-kept", {"X-Versions-Enabled": "true"})
    ids = []
    for name in ("old", "new"):
        client(f"PUT slo-parts/{name}", body=name.encode())
        manifest = json.dumps([{"path": f"/slo-parts/{name}"}]).encode()
        ids.append(client("PUT slo-kept/o?multipart-manifest=put", body=manifest).headers["x-object-version-id"])
    asked = f"DELETE slo-kept/o?multipart-manifest=delete&version-id={ids[0]}"
    report = json.loads(client(asked, {"Accept": "application/json"}).body)
    assert (report["Number Deleted"], report["Errors"]) == (2, [])
    assert [client(f"HEAD slo-parts/{name}").status for name in ("old", "new")] == [404, 200]
    assert client("GET slo-kept/o").body == b"new"
    assert client(f"GET slo-kept/o?version-id={ids[0]}").status == 404


@pytest.mark.parametrize(
    ("entries", "headers", "line"),
    [
        ([segment("1")], {}, "Response Status: 201 Created"),
        ([segment("1"), {"path": "/slo-parts/none"}], {}, "/slo-parts/none, 404 Not Found"),
        ([segment("1")], {"Etag": "wrong"}, "Response Status: 422 Unprocessable Entity"),
    ],
)
def test_a_heartbeat_comes_before_the_outcome(
    client: Client, entries: list[object], headers: dict[str, str], line: str
) -> None:
    asked = "PUT slo/beating?multipart-manifest=put&heartbeat=on"
    answer = client(asked, headers, json.dumps(entries).encode())
    assert (answer.status, answer.headers["content-type"]) == (202, "text/plain")
    beat, _, report = answer.body.decode().partition("\r\n\r\n")
    assert not beat.strip() and line in report.splitlines()
