"""A trace as a workload: what is taken, with which sizes; names cannot be guessed; the rest is counted."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from collector.export import workload
from collector.export.workload import Names
from storage_cluster.bench import formats

MS = 1_000_000
ROWS = [  # method, target, status, request_bytes, response_bytes, length of the request's body, of the response's
    ("GET", "/auth/v1.0", 200, 150, 400, None, 0),
    ("PUT", "/v1/AUTH_a/photos/cat%20one.jpg", 201, 1150, 200, 1000, 0),
    ("GET", "/v1/AUTH_a/photos/cat%20one.jpg?x=1", 200, 150, 1200, None, 1000),
    ("HEAD", "/bucket/dir/key", 200, 150, 200, None, 77),
    ("GET", "/bucket?list-type=2", 200, 150, 900, None, None),
    ("PUT", "/bucket/cut", 200, 450, 200, None, None),
    ("POST", "/bucket/key?uploads", 200, 150, 300, None, None),
    ("COPY", "/v1/AUTH_a/photos/cat", 201, 150, 200, None, None),
    ("DELETE", "/v1/AUTH_a/photos/gone", 404, 150, 200, None, None),
    ("PUT", "/v1/AUTH_a/photos/by-a-daemon", 201, 150, 200, 3, None),
    ("PUT", "/10.0.0.1/sda/of-a-parent", 201, 150, 200, 3, None),
]


class FakeTrace:
    """The tables that are read, with one connection."""

    name = "shop"

    def read(self, name: str, columns: list[str]) -> pa.Table:
        return pa.table(self._columns(name)).select(columns)

    def _columns(self, name: str) -> dict[str, list]:
        ids = list(range(len(ROWS)))
        if name == "spans":
            return {"span_id": ids, "parent_span_id": [*[None] * (len(ROWS) - 1), 1]}
        if name == "messages":
            sides = [(True, 1, row, row[5]) for row in ROWS] + [(False, 2, row, row[6]) for row in ROWS]
            return {
                "connection_id": [1] * len(sides), "from_client": [side[0] for side in sides],
                "stream_offset": [*ids, *ids], "head_kind": [side[1] for side in sides],
                "method": [side[2][0] if side[0] else "" for side in sides],
                "status": [0 if side[0] else side[2][2] for side in sides],
                "content_length": [-1 if side[3] is None else side[3] for side in sides],
            }  # fmt: skip
        empty = ("operation", "bucket", "object_key", "upload")
        return {
            "exchange_id": ids, "connection_id": [1] * len(ROWS), "protocol": ["http/1.1"] * len(ROWS),
            "method": [row[0] for row in ROWS], "target": [row[1] for row in ROWS], "status": [row[2] for row in ROWS],
            "request_bytes": [row[3] for row in ROWS], "response_bytes": [row[4] for row in ROWS],
            "background": [row[1].endswith("daemon") for row in ROWS],
            **{column: pa.array([None] * len(ROWS), pa.string()) for column in empty},
            **{column: pa.array([None] * len(ROWS), pa.int64()) for column in ("part", "range_first", "range_last")},
            "request_first_sent_trace_ns": [7 * MS + at * MS for at in ids],
            "request_first_received_trace_ns": pa.array([None] * len(ROWS), pa.int64()),
        }  # fmt: skip


def test_client_requests_are_taken_with_their_times_kinds_and_sizes() -> None:
    found, left_out = workload.workload(FakeTrace(), b"key")  # type: ignore[arg-type]
    assert [(each["t_ns"] // MS, each["kind"], each.get("size_bytes"), each["status"]) for each in found] == [
        (0, "write", 1000, 201),
        (1, "read", 1000, 200),
        (2, "head", 77, 200),
        (3, "list", None, 200),
        (4, "write", 300, 200),  # its head was cut: 450 less the median of 150
        (7, "delete", 0, 404),
    ]
    assert [each.get("estimated", False) for each in found] == [False, False, False, False, True, False]
    assert found[0]["object"] == found[1]["object"] != found[5]["object"]
    assert left_out == {"logins": 1, "that begin, end or list multipart uploads": 1, "copies": 1}


def test_the_same_name_is_the_same_hash_and_no_dictionary_finds_it() -> None:
    ours, theirs = Names(b"one"), Names(b"two")
    assert ours.object("c", "o") == ours.object("c", "o") != theirs.object("c", "o")
    assert (
        len({ours.object("c", "o"), ours.object("co", ""), ours.object("c", "o", "part u 1"), ours.container("c")}) == 4
    )


def test_what_is_written_is_what_the_load_generator_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    monkeypatch.setattr(workload.secrets, "token_bytes", lambda count: keys.append(count) or b"k" * count)
    (file,) = workload.write(FakeTrace(), tmp_path / "w.jsonl")  # type: ignore[arg-type]
    text = file.read_text("utf-8")
    assert keys == [32] and "cat" not in text and "photos" not in text and "AUTH" not in text
    assert json.loads(text.splitlines()[0])["estimated"] == 1
    made, _ = formats.load(file)
    assert [stage.name for stage in made.stages] == ["containers", "prepare", "replay"]
    assert [each.size_bytes for each in made.stages[1].works[0].operations[0].planned] == [77]
    assert any("1 logins" in notice for notice in made.notices)
    assert any("1 sizes are estimates" in notice for notice in made.notices)
