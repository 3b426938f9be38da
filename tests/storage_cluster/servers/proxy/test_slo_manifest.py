"""Manifests of static large objects: what is wrong with them in Swift's words, and what they stand for."""

import json

import pytest

from storage_cluster.servers.http.messages import Refusal
from storage_cluster.servers.proxy.segments import Segment
from storage_cluster.servers.proxy.slo_manifest import Asked, Entry, etag_of, parse_sent, parse_stored, sent_text

MD5 = "b0baee9d279d34fa1dfd71aadb908c3f"
HEAD = {
    "Content-Length": "5",
    "Etag": MD5,
    "Content-Type": "x/seg",
    "Last-Modified": "Fri, 20 Nov 2026 13:05:00 GMT",
}


@pytest.mark.parametrize(
    ("item", "complaint"),
    [
        ({"path": "/c/o", "foo": 1, "bar": 2}, 'extraneous keys "bar", "foo"'),
        ({"path": "nope"}, "path does not refer to an object. Path must be of the form /container/object."),
        ({"path": "/c/"}, "path does not refer to an object. Path must be of the form /container/object."),
        ({"path": 1}, '"path" must be a string'),
        ({"path": "/c/whole"}, "manifest must not include itself as a segment"),
        ({"path": "/c/o", "size_bytes": "x"}, "invalid size_bytes"),
        ({"path": "c//"}, "path does not refer to an object. Path must be of the form /container/object."),
        ({"path": "/c/o", "etag": 5}, '"etag" must be a string or null (if provided)'),
        ({"path": "/c/o", "range": 5}, "invalid range"),
        ({"path": "/c/o", "range": "junk"}, "invalid range"),
        ({"path": "/c/o", "range": "0-1,2-3"}, "multiple ranges (only one allowed)"),
        ({"path": "/c/o", "range": "9-12", "size_bytes": 5}, "unsatisfiable range"),
        ({"data": "!!!"}, "data must be valid base64"),
        ({"data": 5}, "data must be valid base64"),
        ({"data": ""}, "too small; each segment must be at least 1 byte."),
        ({"data": "aGVsbG8=", "etag": "x"}, 'extraneous keys "etag"'),
        ({"etag": MD5, "foo": 1}, 'expected keys to include one of "path" or "data"'),
        (7, "not a JSON object"),
    ],
)
def test_complaints_name_the_entry(item: object, complaint: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse_sent(json.dumps([{"path": "/c/fine"}, item]).encode(), "/c/whole")
    assert (refused.value.status, refused.value.text) == (400, f"Index 1: {complaint}\n")


def test_only_the_last_segment_may_stand_for_no_bytes() -> None:
    document = [{"path": "/c/o", "size_bytes": 0}, {"path": "/c/o", "size_bytes": "0", "range": ""}]
    with pytest.raises(Refusal) as refused:
        parse_sent(json.dumps(document).encode(), "/c/whole")
    assert refused.value.text == "Index 0: too small; each segment must be at least 1 byte.\n"


@pytest.mark.parametrize(
    ("text", "status", "complaint"),
    [
        (b"junk", 400, "Manifest must be valid JSON.\n"),
        (b"\xff", 400, "Manifest must be valid JSON.\n"),
        (b"{}", 400, "Manifest must be a list.\n"),
        (
            b'[{"data": "!"}]',
            400,
            "Index 0: data must be valid base64\nInline data segments require at least one object-backed segment.\n",
        ),
        (b'[{"data": "aGVsbG8="}]', 400, "Inline data segments require at least one object-backed segment.\n"),
        (json.dumps([{"path": "/c/o"}] * 1001).encode(), 413, "Number of object-backed segments must be <= 1000"),
    ],
)
def test_complaints_about_the_whole(text: bytes, status: int, complaint: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse_sent(text, "/c/whole")
    assert (refused.value.status, refused.value.text) == (status, complaint)


@pytest.mark.parametrize(
    ("item", "asked"),
    [
        ({"path": "/c/a/b"}, Asked("/c/a/b")),
        ({"path": "c/o", "etag": None, "size_bytes": None}, Asked("c/o")),
        ({"path": "/c/o", "etag": MD5, "size_bytes": "5", "range": "-2"}, Asked("/c/o", MD5, 5, "-2")),
    ],
)
def test_what_is_asked_for(item: dict, asked: Asked) -> None:
    assert parse_sent(json.dumps([item]).encode(), "/c/whole") == [asked]


@pytest.mark.parametrize(
    ("asked", "headers", "segment", "etag_part", "as_sent"),
    [
        (
            Asked("/c/o"),
            {},
            Segment(5, "c", "o", MD5),
            MD5,
            {"path": "/c/o", "etag": MD5, "size_bytes": 5},
        ),
        (
            Asked("/c/o", range="-2"),
            {},
            Segment(2, "c", "o", MD5, 3, whole=False),
            f"{MD5}:3-4;",
            {"path": "/c/o", "etag": MD5, "size_bytes": 5, "range": "3-4"},
        ),
        (
            Asked("c/o", range="0-"),
            {},
            Segment(5, "c", "o", MD5),
            MD5,
            {"path": "/c/o", "etag": MD5, "size_bytes": 5},
        ),
        (
            Asked("/c/o"),
            {"X-Static-Large-Object": "True", "Etag": f'"{MD5}"'},
            Segment(5, "c", "o", MD5, nested=True),
            MD5,
            {"path": "/c/o", "etag": MD5, "size_bytes": 5},
        ),
    ],
)
def test_an_entry(asked: Asked, headers: dict[str, str], segment: Segment, etag_part: str, as_sent: dict) -> None:
    entry = Entry.from_head(asked, HEAD | headers)
    assert (entry.segment, entry.etag_part, entry.as_sent) == (segment, etag_part, as_sent)
    assert parse_stored(json.dumps([entry.fields]).encode()) == [entry]
    assert entry.fields["last_modified"] == "2026-11-20T13:05:00.000000"


def test_inline_data() -> None:
    entry = Entry({"data": "aGVsbG8="})
    assert (entry.segment.data, entry.segment.length) == (b"hello", 5)
    assert sent_text([entry]) == b'[{"data": "aGVsbG8="}]'
    assert etag_of([entry, Entry.from_head(Asked("/c/o"), HEAD)]) == "c8bf5a73d037dcc75247ceb76414aaf0"
