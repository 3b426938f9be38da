"""Requests at their own times: what is prepared, that each begins when it is due, faster on demand, and how late."""

import asyncio
import json
from pathlib import Path

import pytest

from storage_cluster.bench import formats, parameters
from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.model import Work
from storage_cluster.bench.results import folder
from storage_cluster.bench.results.report_text import as_text
from storage_cluster.bench.run import local
from storage_cluster.bench.run.schedule import Plan
from storage_cluster.bench.storage.opening import Login
from storage_cluster.bench.storage.swift import Credentials
from tests.helpers.tiny_store import serving

MS = 1_000_000
HEAD = {"format": "twintap-requests", "version": 1, "name": "shop", "left_out": {"copies": 3}}
REQUESTS = [
    (0, "read", "a", 700, 200),
    (10, "write", "b", 50, 201),
    (20, "read", "b", 50, 200),
    (30, "head", "a", 700, 200),
    (40, "list", "", 0, 200),
    (50, "delete", "b", 0, 204),
    (60, "read", "gone", 0, 404),
]


def content(requests: list[tuple[int, str, str, int, int]] = REQUESTS) -> bytes:
    lines = [
        {"t_ns": at * MS, "kind": kind, "container": "c", "object": name, "size_bytes": size, "status": status}
        for at, kind, name, size, status in requests
    ]
    return "".join(json.dumps(line) + "\n" for line in (HEAD, *lines)).encode()


def test_a_schedule_is_played_with_what_it_needs(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving() as store:
            made, _ = formats.parse(content(), "w.jsonl")
            info = folder.describe(made, "test")
            login = Login(Credentials(store.auth_url, "u", "k"))
            done = await local.run(made, tmp_path / "run", info, login=login)
        rows = [row for row in done.rows() if row.stage == "replay"]
        rows.sort(key=lambda row: row.start_ns - row.waited_ns)
        assert [(row.op, row.file, row.status) for row in rows] == [
            ("GET", "c/a", 200),
            ("PUT", "c/b", 201),
            ("GET", "c/b", 200),
            ("HEAD", "c/a", 200),
            ("LIST", "c", 200),
            ("DELETE", "c/b", 204),
            ("GET", "c/gone", 404),
        ]
        due = [row.start_ns - row.waited_ns for row in rows]
        assert [at - due[0] for at in due] == pytest.approx([at * MS for at, *_ in REQUESTS], abs=5 * MS)
        prepared = [(row.file, row.bytes) for row in done.rows() if row.stage == "prepare"]
        assert prepared == [("c/a", 700)]
        assert "began later than planned: median" in as_text(done)

    asyncio.run(run())


def test_speed_and_drivers_divide_a_schedule() -> None:
    made, _ = formats.parse(content(), "w.jsonl")
    assert made.notices == ("w.jsonl: of the trace not played: 3 copies",)
    work: Work = parameters.change(made, "replay.replay.speed", "2").stages[-1].works[0]
    assert list(Plan(work, 0, 2, 2).due_times(100))[:3] == [100, 100 + 5 * MS, 100 + 10 * MS]
    parts = [list(Plan(work, first, 1, 2).due_times(0)) for first in (0, 1)]
    assert sorted(parts[0] + parts[1]) == list(Plan(work, 0, 2, 2).due_times(0)) and len(parts[0]) == 4
    with pytest.raises(WorkloadError, match="greater than 0"):
        parameters.change(made, "replay.replay.speed", "0")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ((b'"version": 1', b'"version": 9'), "w.jsonl:1: version 9"),
        ((b'"kind": "head"', b'"kind": "steal"'), "w.jsonl:5: not a request"),
        ((b'"kind": "head"', b'"kind": "delay"'), "w.jsonl:5: such a request cannot be played"),
        ((b'"t_ns": 0', b'"t_ns": [}'), "w.jsonl:2: not JSON"),
    ],
)
def test_a_damaged_file_is_reported_with_its_line(damage: tuple[bytes, bytes], said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        formats.parse(content().replace(*damage, 1), "w.jsonl")
