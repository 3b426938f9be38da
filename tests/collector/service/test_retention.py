"""What a collector keeps of a session, and what it says of what it deleted."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from collector.service import ingest
from collector.service.app import create_app
from collector.service.retention import Kept, Retention, RetentionLimits, limits_of, numbers_beyond
from collector.service.settings import CollectorSettings
from collector.service.under_way import UnderWay
from tests.collector.service.test_ingest import INCARNATION, LATER, SEGMENT, file_of, files, path_of, put
from tests.helpers.app_client import AppClient

ONE, TWO = Path("one"), Path("two")


def segments_at(*arrivals: tuple[Path, int, int]) -> list[Kept]:
    """Segments of 100 bytes: incarnation, number, arrival."""
    return [Kept(folder, number, folder / str(number), 100, at) for folder, number, at in arrivals]


TWO_AGENTS = segments_at((ONE, 1, 10), (TWO, 1, 11), (ONE, 2, 20), (TWO, 2, 21), (ONE, 3, 30))


@pytest.mark.parametrize(
    ("limits", "now_ns", "expected"),
    [
        (RetentionLimits(), 10**18, {}),
        (RetentionLimits(age_ns=20), 30, {}),
        (RetentionLimits(age_ns=19), 30, {ONE: 1}),
        (RetentionLimits(age_ns=10), 31, {ONE: 2, TWO: 1}),
        (RetentionLimits(age_ns=1), 10**18, {ONE: 2, TWO: 1}),
        (RetentionLimits(size_bytes=500), 30, {}),
        (RetentionLimits(size_bytes=499), 30, {ONE: 1}),
        (RetentionLimits(size_bytes=300), 30, {ONE: 1, TWO: 1}),
        (RetentionLimits(size_bytes=1), 30, {ONE: 2, TWO: 1}),
    ],
)
def test_the_oldest_expire_and_the_newest_of_each_agent_stays(
    limits: RetentionLimits, now_ns: int, expected: dict[Path, int]
) -> None:
    assert numbers_beyond(TWO_AGENTS, limits, now_ns) == expected


def test_a_segment_that_came_late_expires_by_its_arrival() -> None:
    late = segments_at((ONE, 2, 10), (ONE, 3, 20), (ONE, 1, 30))
    assert numbers_beyond(late, RetentionLimits(size_bytes=200), 30) == {ONE: 2}, "and with it what is before it"


def arrive(data: Path, client: AppClient, numbers: Sequence[int], incarnation: str = INCARNATION) -> None:
    for number in numbers:
        put(client, number, incarnation=incarnation)
        os.utime(data / file_of(number, incarnation), ns=(number, number))


def test_what_has_expired_is_deleted_and_not_missing(tmp_path: Path) -> None:
    client = AppClient(create_app(CollectorSettings(tmp_path)))
    arrive(tmp_path, client, (1, 2, 4, 5))
    arrive(tmp_path, client, (7,), LATER)
    retention = Retention(tmp_path / "sessions", RetentionLimits(age_ns=3), UnderWay().keep_out, lambda: 6)
    assert retention.step() == 2
    assert [name for name in files(tmp_path) if name.endswith("g")] == [file_of(4), file_of(5), file_of(7, LATER)]
    (host,) = client.get("/api/sessions/s1").json()["hosts"]
    first = host["incarnations"][0]
    assert (first["segments_count"], first["expired_count"], first["missing"]) == (2, 2, [3])
    assert (host["expired_count"], host["missing_count"]) == (2, 7)
    answer = client.post(f"{path_of()}/close", json={"last_number": 5, "lost_count": 1})
    assert answer.json()["closed"] is True
    assert retention.step() == 0


def test_a_session_that_is_being_read_is_left_alone(tmp_path: Path) -> None:
    client = AppClient(create_app(CollectorSettings(tmp_path)))
    arrive(tmp_path, client, (1, 2))
    analysing = UnderWay()
    analysing.begin("s1")
    busy = Retention(tmp_path / "sessions", RetentionLimits(size_bytes=1), analysing.keep_out)
    assert busy.step() == 0
    assert len(files(tmp_path)) == 2


def test_a_session_is_deleted_with_its_trace(tmp_path: Path) -> None:
    client = AppClient(create_app(CollectorSettings(tmp_path)))
    assert client.request("DELETE", "/api/sessions/s1").status_code == 404
    put(client, 1)
    put(client, 1, session="s2")
    (tmp_path / "traces" / "s1").mkdir(parents=True)
    client.app.state.analysing.begin("s1")
    assert client.request("DELETE", "/api/sessions/s1").status_code == 409
    client.app.state.analysing.end("s1")
    assert client.request("DELETE", "/api/sessions/s1").status_code == 204
    assert [each["session"] for each in client.get("/api/sessions").json()] == ["s2"]
    assert list((tmp_path / "traces").iterdir()) == []
    assert client.request("DELETE", "/api/sessions/..%2ftraces").status_code in (400, 404)


def test_what_a_killed_collector_was_deleting_is_removed(tmp_path: Path) -> None:
    for folder in ("sessions", "traces"):
        half = tmp_path / folder / ".s1.0123abcd.deleted"
        half.mkdir(parents=True)
        (half / "x").write_bytes(SEGMENT)
    assert ingest.sessions(tmp_path) == []
    assert Retention(tmp_path / "sessions", RetentionLimits(size_bytes=1), UnderWay().keep_out).step() == 0
    ingest.clean(tmp_path)
    assert files(tmp_path) == []


def test_options_are_hours_and_gib() -> None:
    assert limits_of(None, None) == RetentionLimits()
    assert limits_of(1.5, 2) == RetentionLimits(5_400 * 10**9, 2 << 30)
