"""Collectors that share a data directory: what one has done, the others know; what must be done once, one does."""

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collector.decode.host_capture import HostSource
from collector.service import ingest, shared_data
from collector.service.app import create_app
from collector.service.arrivals import KEPT_FILES, MOST_BYTES, Arrival, ArrivalLog, ArrivalReader, ArrivalReading
from collector.service.joining import AGE_NS, SPAN_NS, Joining
from collector.service.live import Counters
from collector.service.retention import Retention, RetentionLimits
from collector.service.settings import CollectorSettings
from collector.service.shared_data import FileLock, SharedData, enter_folder, leave_folders
from collector.service.under_way import UnderWay
from collector.trace.model import TraceInfo
from tests.collector.service.test_agents import report
from tests.collector.service.test_ingest import INCARNATION, SEGMENT, file_of, files, path_of, put
from tests.collector.service.test_windows import HISTORY, answer
from tests.helpers.app_client import AppClient
from tracer.errors import ResourceError

SECOND = 1_000_000_000


class Two:
    """Two collectors on one data directory; `analysing` runs within each analysis."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.analysed: list[list[str]] = []
        self.analysing = lambda: None
        settings = CollectorSettings(data, live_window_seconds=10, shared=True)
        self.one, self.other = (AppClient(create_app(settings, self.analyse)) for _ in range(2))
        assert self.one.app.state.shared.does_chores

    def analyse(self, sources: Sequence[HostSource], trace: str, counters: Counters) -> TraceInfo:
        self.analysed.append([file.name[-13:] for source in sources for file in source.files])
        self.analysing()
        return TraceInfo(1, "test", ())

    def look(self) -> None:
        """Some time has passed since both looked at what the other one did."""
        for client in (self.one, self.other):
            client.app.state.agents._looked_ns = 0
            client.app.state.windows._next_look = 0


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    made = Two(tmp_path)
    yield made
    for client in (made.one, made.other):
        client.app.state.shared.close()


def segments_in(data: Path) -> list[str]:
    return [name for name in files(data) if name.endswith(".pcapng")]


def test_a_segment_that_one_has_is_known_to_the_other_and_stored_once(two: Two) -> None:
    assert put(two.one, 1).json()["outcome"] == "stored"
    assert put(two.other, 1).json() == {"outcome": "known", "acknowledged": True}
    assert put(two.other, 1, SEGMENT + b"x").status_code == 409
    assert put(two.other, 2).json()["outcome"] == "stored"
    assert segments_in(two.data) == [file_of(1), file_of(2)]
    (host,) = two.one.get("/api/sessions/s1").json()["hosts"]
    assert (host["segments_count"], host["missing_count"]) == (2, 0)
    assert two.one.post("/api/sessions/s1/analyse").status_code == 200
    assert two.analysed == [["000001.pcapng", "000002.pcapng"]]


def test_a_segment_that_arrives_at_both_at_the_same_time_is_stored_once(two: Two) -> None:
    outcomes: list[str] = []
    for client in (two.one, two.other):  # what an app makes with its first request is not made by two threads at once
        put(client, 30)

    def send(client: AppClient) -> None:
        outcomes.extend(put(client, number).json()["outcome"] for number in range(1, 21))

    threads = [threading.Thread(target=send, args=(client,)) for client in (two.one, two.other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["known"] * 20 + ["stored"] * 20
    assert len(segments_in(two.data)) == 21
    assert not list(two.data.rglob("*.incoming"))


def test_a_segment_that_was_joined_meanwhile_is_known_to_the_other(two: Two) -> None:
    for number in (1, 2, 3):
        put(two.one, number)
        os.utime(two.data / file_of(number), ns=(number, number))
    late = SPAN_NS + AGE_NS + 1000
    assert Joining(two.data / "sessions", 0, UnderWay().keep_out, lambda: late).step() == 3
    assert segments_in(two.data) == []
    assert put(two.other, 2).json()["outcome"] == "known"


def test_an_agent_that_goes_on_to_another_collector_is_one_agent_at_both(two: Two) -> None:
    def send(client: AppClient, **changes: Any) -> None:
        client.post(f"{path_of()}/report", json=report(**changes).model_dump(mode="json"))

    def states(client: AppClient) -> list[tuple[str, int]]:
        return [(each["state"], each["packets_count"]) for each in client.get("/api/agents").json()]

    send(two.one, packets_count=1)
    two.look()
    assert states(two.other) == [("capturing", 1)]
    send(two.other, packets_count=2, sent_ns=105 * SECOND, away="http://one:8710: it does not answer")
    two.look()
    for client in (two.one, two.other):
        assert states(client) == [("capturing", 2)]
        (agent,) = client.get("/api/agents").json()
        assert agent["packets_per_s"] == pytest.approx(0.2), "of the time between the two"
        away = {"what": "delivers here, since the collector of its choice takes nothing"}
        assert away.items() <= agent["problems"][0].items()
    assert "twintap_agent_away{" in two.one.get("/metrics").text
    send(two.other, packets_count=3, ended=True)
    two.look()
    assert states(two.one) == [("ended", 3)]


def test_orders_that_one_was_given_are_given_by_the_other(two: Two) -> None:
    def orders(client: AppClient) -> bool:
        answered = client.post(f"{path_of()}/report", json=report().model_dump(mode="json")).json()
        return bool(answered["orders"]["recording"])

    assert orders(two.one)
    assert orders(two.other)
    for wanted in (False, True):
        given = two.one.post("/api/sessions/s1/orders", json={"recording": wanted})
        assert given.is_success
        assert orders(two.other) is wanted


def test_two_collectors_do_not_analyse_one_session_at_once(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.service.under_way.PATIENCE_SECONDS", 0)
    put(two.one, 1)
    put(two.one, 1, session="s2")
    answers = []

    def meanwhile() -> None:
        two.analysing = lambda: None
        answers.append(two.other.post("/api/sessions/s1/analyse"))
        answers.append(two.other.request("DELETE", "/api/sessions/s1"))
        answers.append(two.other.post("/api/sessions/s2/analyse"))

    two.analysing = meanwhile
    assert two.one.post("/api/sessions/s1/analyse").status_code == 200
    assert [each.status_code for each in answers] == [409, 409, 200]
    where = f"at another collector (host {os.uname().nodename}, process {os.getpid()})"
    assert where in answers[0].json()["detail"]
    assert two.other.post("/api/sessions/s1/analyse").status_code == 200, "when it is done"


def test_what_is_no_name_is_no_lock(two: Two) -> None:
    for name in ("..", "a b", "-x"):
        assert two.one.request("DELETE", f"/api/sessions/{name}").status_code in (400, 404, 405)
        assert two.one.post(f"/api/sessions/{name}/analyse").status_code in (400, 404, 405)
    assert not list((two.data / "collectors").glob("analyses/*"))


def test_nothing_that_another_collector_reads_is_removed(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 2):
        put(two.one, number)
    sessions, exclusion = two.data / "sessions", two.one.app.state.analysing.keep_out
    retention = Retention(sessions, RetentionLimits(size_bytes=1), exclusion)
    removed: list[int] = []
    two.analysing = lambda: removed.append(retention.step())
    assert two.other.post("/api/sessions/s1/analyse").status_code == 200
    assert removed == [0]
    assert retention.step() == 1


def test_an_analysis_waits_while_another_collector_removes_files(tmp_path: Path) -> None:
    one, other = (UnderWay(SharedData(tmp_path).session_lock) for _ in range(2))
    begun: list[bool] = []
    with one.keep_out("s1") as is_free:
        assert is_free
        waiting = threading.Thread(target=lambda: begun.append(other.begin("s1")))
        waiting.start()
        waiting.join(0.1)
        assert begun == []
    waiting.join()
    assert begun == [True]
    assert "s1" in one
    with one.keep_out("s1") as is_free:
        assert not is_free
    other.end("s1")
    assert "s1" not in one


def test_one_collector_does_the_chores_and_another_takes_over(two: Two) -> None:
    now = [0.0]
    first, second = SharedData(two.data / "x", lambda: now[0]), SharedData(two.data / "x", lambda: now[0])
    assert (first.does_chores, second.does_chores) == (True, False)
    holder = f"host {os.uname().nodename}, process {os.getpid()}"
    assert (first.chores_text(), second.chores_text()) == ("this collector", holder)
    first.close()
    assert not second.does_chores, "it asks once a second"
    now[0] += 1
    assert (second.does_chores, first.does_chores) == (True, False)
    second.close()
    now[0] += 1
    said = [client.get("/api/storage").json()["chores"] for client in (two.one, two.other)]
    assert said == ["this collector", holder]
    metrics = [client.get("/metrics").text for client in (two.one, two.other)]
    assert ["twintap_collector_does_chores 1.0" in text for text in metrics] == [True, False]


def test_chores_are_done_by_one(two: Two) -> None:
    for number in (1, 2):
        put(two.other, number)
    for client, expected in ((two.other, 0), (two.one, 1)):
        shared = client.app.state.shared
        limits, exclusion = RetentionLimits(size_bytes=1), client.app.state.analysing.keep_out
        sessions = two.data / "sessions"
        retention = Retention(sessions, limits, exclusion, may_work=lambda shared=shared: shared.does_chores)
        assert retention.step() == expected
        joining = Joining(sessions, 0, exclusion, lambda: 1 << 62, may_work=lambda shared=shared: shared.does_chores)
        assert joining.step() == 0


def test_a_window_that_one_was_asked_for_is_gathered_wherever_recorders_report(two: Two) -> None:
    def report_to(client: AppClient, **changes: Any) -> list[dict[str, Any]]:
        kept = HISTORY | {"from_ns": 0}
        body = report(history=kept, **changes).model_dump(mode="json")
        found: list[dict[str, Any]] = client.post(f"{path_of()}/report", json=body).json()["windows"]
        return found

    report_to(two.one)
    two.look()
    window = two.other.post("/api/sessions/s1/windows", json={"last_seconds": 60}).json()["window"]
    again = two.other.post("/api/sessions/s1/windows", json={"last_seconds": 60}).json()["window"]
    assert window != again, "also of one second"
    two.look()
    assert [each["window"] for each in report_to(two.one)] == [window, again]
    put(two.one, 5, session=window)
    two.other.post(f"{path_of(session=window)}/close", json={"last_number": 5})
    report_to(two.other, windows=(answer(window),))
    two.look()
    two.other.app.state.windows.step()
    assert two.analysed == [], "the one that does the chores makes the trace"
    two.one.app.state.windows.step()
    assert two.analysed == [["000005.pcapng"]]
    two.look()
    for client in (two.one, two.other):
        assert client.get(f"/api/windows/{window}").json()["state"] == "ready"
    assert two.other.request("DELETE", f"/api/sessions/{window}").status_code == 204
    two.look()
    assert [each["window"] for each in two.one.get("/api/windows").json()] == [again]


def test_a_trigger_that_another_collector_fired_holds_off(two: Two) -> None:
    for client in (two.one, two.other):
        client.post(f"{path_of()}/report", json=report().model_dump(mode="json"))
    now_ns = two.one.app.state.clock()
    for client in (two.one, two.other):
        client.app.state.agents._clock = lambda: now_ns
    fired = [two.one.app.state.triggers.call("alarm", "s1", ""), two.other.app.state.triggers.call("alarm", "s1", "")]
    two.look()
    assert [len(each) for each in fired] == [1, 0] or len(two.one.get("/api/windows").json()) == 1


def test_a_live_trace_has_what_every_collector_took(two: Two) -> None:
    put(two.one, 1)
    put(two.other, 2)
    noted: list[Arrival] = []
    for client, count in ((two.other, 0), (two.one, 2)):
        reading = ArrivalReading(client.app.state.shared, noted.append, 10 * SECOND)
        reading.step()
        reading.step()
        assert len(noted) == count
    assert sorted((each.session, each.host, each.incarnation, each.number) for each in noted) == [
        ("s1", "proxy", INCARNATION, 1),
        ("s1", "proxy", INCARNATION, 2),
    ]
    late = ArrivalReading(two.one.app.state.shared, noted.append, 10 * SECOND, clock=lambda: 1 << 62)
    late.step()
    assert len(noted) == 2, "one that takes over passes over what is too old"


def test_the_status_of_a_live_trace_is_known_to_all(two: Two) -> None:
    live = two.one.app.state.live
    folder = two.data / "sessions" / "s1"
    put(two.one, 1)
    live._analysis = lambda *_: (_ for _ in ()).throw(ResourceError("no room"))
    live.note_segment("s1", "proxy", INCARNATION, 1, two.data / file_of(1))
    assert live.step() == 0
    there = two.other.get("/api/sessions/s1/live").json()
    assert (there["error"], there["running"], there["rounds_count"]) == ("no room", True, 1)
    assert (folder / ".live.status").is_file()
    assert two.other.get("/api/sessions/s2/live").json()["rounds_count"] == 0


def test_arrivals_are_read_once_in_whole_lines_and_their_files_are_bounded(tmp_path: Path) -> None:
    log, reader = ArrivalLog(tmp_path, "one", lambda: 7), ArrivalReader(tmp_path)
    assert list(reader.read()) == []
    log.note("s1", "a", INCARNATION, 1)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:9])
    assert [each.number for each in reader.read()] == [1]
    file.write_bytes(whole + whole + b"[1,\n[7]\n")
    assert [each.number for each in reader.read()] == [1]
    assert list(reader.read()) == []
    file.write_bytes(b"x" * MOST_BYTES)
    for number in range(KEPT_FILES + 1):
        log.note("s1", "a", INCARNATION, number)
        newest = max(tmp_path.iterdir())
        newest.write_bytes(newest.read_bytes() + b"x" * MOST_BYTES)
    assert len(list(tmp_path.iterdir())) <= KEPT_FILES + 1
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_cleaned_by_the_first_of_those_that_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_data, "_held", [])
    cleaned: list[str] = []
    enter_folder(tmp_path, lambda: cleaned.append("first"), is_shared=True)
    enter_folder(tmp_path, lambda: cleaned.append("second"), is_shared=True)
    with pytest.raises(ResourceError, match="another collector uses"):
        enter_folder(tmp_path, lambda: cleaned.append("alone"), is_shared=False)
    assert cleaned == ["first"]
    leave_folders()
    enter_folder(tmp_path, lambda: cleaned.append("alone"), is_shared=False)
    with pytest.raises(ResourceError, match="--shared"):
        enter_folder(tmp_path, lambda: None, is_shared=True, patience_seconds=0)
    assert cleaned == ["first", "alone"]
    leave_folders()


def test_a_lock_ends_with_its_process_and_says_whose_it_is(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = os.fork()
    if not process:
        FileLock(path, "host far, process 7").take()
        os.kill(os.getpid(), 9)
    os.waitpid(process, 0)
    lock = FileLock(path, "host near, process 8")
    assert lock.holder() == "host far, process 7"
    assert lock.take()
    assert FileLock(path, "").take() is False
    assert lock.holder() == "host near, process 8"
    lock.release()
    assert lock.holder() == ""


def test_without_locks_a_folder_cannot_be_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(shared_data, "_held", [])
    monkeypatch.setattr(shared_data, "fcntl", SimpleNamespace(flock=refuse, LOCK_EX=2, LOCK_SH=1, LOCK_NB=4))
    cleaned: list[bool] = []
    with pytest.raises(ResourceError, match="has no locks"):
        enter_folder(tmp_path, lambda: cleaned.append(True), is_shared=True)
    assert cleaned == []
    enter_folder(tmp_path, lambda: cleaned.append(True), is_shared=False)
    assert cleaned == [True]
    leave_folders()


def test_what_others_are_receiving_now_is_not_removed(tmp_path: Path) -> None:
    half = tmp_path / "sessions" / "s1" / "proxy" / INCARNATION / ".x.0123abcd.incoming"
    half.parent.mkdir(parents=True)
    half.write_bytes(SEGMENT)
    ingest.clean(tmp_path, 3600)
    assert half.exists()
    os.utime(half, (1, 1))
    ingest.clean(tmp_path, 3600)
    assert not half.exists()
