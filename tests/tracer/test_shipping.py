"""The agent's spool and its sending: nothing lost, each taken once, whatever the collector does."""

import errno
import hashlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path

import httpx
import pytest

from collector import _core
from tests.helpers.answering import connections_to
from tracer.errors import InputError, ResourceError
from tracer.reports import REPORT_SECONDS, Delivery
from tracer.segments import segment_name
from tracer.shipping import (
    END_SECONDS,
    FIRST_RETRY_SECONDS,
    LONGEST_RETRY_SECONDS,
    LOOK_SECONDS,
    PACKED,
    PCAPNG,
    CollectorClient,
    CollectorDownError,
    CollectorRefusesError,
    SegmentRefusedError,
    Shipper,
    ShippingThread,
    check_url,
)
from tracer.spool import STATE_SECONDS, Destination, Spool, SpoolLimits, SpoolState, memory_folder, open_spools, trim

URL = "http://collector:8710"
INCARNATION, LATER = "20261125T225248-0a1b2c", "20261125T225300-ffffff"
LIMIT = 1000


@dataclass
class FakeCollector:
    """Answers as a collector does; `fault` replaces the answer to a PUT."""

    stored: dict[str, bytes] = field(default_factory=dict)
    puts: list[str] = field(default_factory=list)
    closed: dict[str, object] = field(default_factory=dict)
    fault: Callable[[httpx.Request], httpx.Response] | None = None
    accept: str = ""
    types: list[str] = field(default_factory=list)

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if request.method == "PUT":
            self.puts.append(path)
            self.types.append(request.headers["Content-Type"])
            if self.fault is not None:
                return self.fault(request)
            is_packed = self.types[-1] == PACKED
            content = _core.unpack(request.content, 1_000_000) if is_packed else request.content
            assert request.headers["X-Content-SHA256"] == hashlib.sha256(content).hexdigest()
            self.stored[path] = content
            headers = {"Accept": self.accept}
            return httpx.Response(201, json={"outcome": "stored", "acknowledged": True}, headers=headers)
        if path.endswith("/close"):
            self.closed[path] = request.read()
            return httpx.Response(200, json={})
        return httpx.Response(200, json={"status": "ok"}, headers={"Accept": self.accept})

    def client(self, token: str = "") -> CollectorClient:
        return CollectorClient(URL, token, connections_to(self.answer))


@dataclass
class Scene:
    """A collector, a spool with what the core writes into it, a clock, and what the operator reads."""

    collector: FakeCollector
    spool: Spool
    now: float = 0.0
    notices: list[str] = field(default_factory=list)
    events: list[tuple[int, dict[str, object]]] = field(default_factory=list)

    def shipper(self, *left: Spool) -> Shipper:
        spools = [*left, self.spool]
        return Shipper(self.collector.client(), spools, SpoolLimits(LIMIT), self.note, lambda: self.now, self.pause)

    def note(self, line: str, level: int = logging.INFO, /, **fields: object) -> None:
        self.notices.append(line)
        self.events.append((level, fields))

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def write(self, number: int, content: bytes = b"segment") -> Path:
        path = self.spool.folder / segment_name(self.spool.stem, number)
        path.write_bytes(content)
        return path


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    spool = spool_at(tmp_path)
    assert spool.open()
    yield Scene(FakeCollector(), spool)
    spool.close()


def spool_at(folder: Path, incarnation: str = INCARNATION) -> Spool:
    return Spool(folder / "s1" / "proxy" / incarnation)


def path_of(number: int, incarnation: str = INCARNATION) -> str:
    return f"/api/sessions/s1/hosts/proxy/incarnations/{incarnation}/segments/{number}"


def status(code: int, detail: str = "disk full") -> Callable[[httpx.Request], httpx.Response]:
    return lambda _: httpx.Response(code, json={"detail": detail})


def no_answer(_request: httpx.Request) -> httpx.Response:
    raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


def test_segments_go_in_order_and_are_deleted_when_acknowledged(scene: Scene) -> None:
    for number in (2, 1, 10):
        scene.write(number, b"%d" % number)
    scene.shipper().step()
    assert scene.collector.puts == [path_of(1), path_of(2), path_of(10)]
    assert scene.collector.stored[path_of(10)] == b"10"
    assert scene.spool.waiting() == []
    assert scene.spool.next_number() == 11


def test_segments_are_packed_where_the_collector_takes_that(scene: Scene) -> None:
    scene.collector.accept = f"{PCAPNG}, {PACKED}"
    scene.write(1)
    scene.write(2)
    shipper = scene.shipper()
    shipper.step()
    assert scene.collector.types == [PCAPNG, PACKED], "its first answer says what it takes"
    assert scene.collector.stored[path_of(2)] == b"segment"
    scene.collector.fault = no_answer
    scene.write(3)
    shipper.step()
    scene.collector.fault, scene.collector.accept = None, ""
    scene.now = FIRST_RETRY_SECONDS
    shipper.step()
    assert scene.collector.types[3:] == [PCAPNG], "it may be another collector that answers after a failure"


def test_a_packed_segment_that_is_not_taken_is_sent_plain(scene: Scene) -> None:
    scene.collector.accept = PACKED
    scene.write(1, b"one")
    scene.write(2, b"two")
    shipper = scene.shipper()
    shipper.check()
    scene.collector.fault = status(422, "damaged")
    shipper.step()
    scene.collector.fault = None
    scene.now = FIRST_RETRY_SECONDS
    shipper.step()
    assert scene.collector.types == [PACKED, PCAPNG, PACKED]
    assert scene.collector.stored == {path_of(1): b"one", path_of(2): b"two"}


def test_partial_segments_are_not_sent(scene: Scene) -> None:
    (scene.spool.folder / f"{scene.spool.stem}-000001.pcapng.partial").write_bytes(b"half")
    scene.shipper().step()
    assert scene.collector.puts == []
    assert scene.spool.next_number() == 2


@pytest.mark.parametrize(
    "fault",
    [no_answer, status(500), status(503), status(507, "no space left"), status(422, "damaged"), status(429)],
)
def test_after_a_failure_segments_stay_and_are_sent_again(
    scene: Scene, fault: Callable[[httpx.Request], httpx.Response]
) -> None:
    scene.write(1)
    scene.write(2)
    scene.collector.fault = fault
    shipper = scene.shipper()
    shipper.step()
    assert [number for number, _ in scene.spool.waiting()] == [1, 2]
    assert len(scene.collector.puts) == 1
    scene.collector.fault = None
    scene.now = FIRST_RETRY_SECONDS
    shipper.step()
    assert sorted(scene.collector.stored) == [path_of(1), path_of(2)]
    assert scene.spool.waiting() == []
    assert len(scene.notices) == 2, "one line when it fails, one when it works again"


def test_an_answer_without_acknowledgement_deletes_nothing(scene: Scene) -> None:
    scene.write(1)
    scene.collector.fault = lambda _: httpx.Response(200, json={"acknowledged": False})
    scene.shipper().step()
    assert len(scene.spool.waiting()) == 1


def test_retries_come_later_and_later_and_are_reported_once(scene: Scene) -> None:
    scene.write(1)
    scene.collector.fault = no_answer
    shipper = scene.shipper()
    attempts: list[float] = []
    for tenth in range(2000):
        scene.now = tenth / 10
        before = len(scene.collector.puts)
        shipper.step()
        if len(scene.collector.puts) > before:
            attempts.append(scene.now)
    gaps = [after - before for before, after in pairwise(attempts)]
    assert gaps[:4] == pytest.approx([0.5, 1.0, 2.0, 4.0])
    assert gaps[-1] == pytest.approx(LONGEST_RETRY_SECONDS)
    assert len(scene.notices) == 1
    assert "Connection refused" in scene.notices[0]


@pytest.mark.parametrize(("code", "remedy"), [(401, "--token-file"), (403, "--token-file"), (404, "check the URL")])
def test_a_refusal_is_said_once_and_tried_again_until_it_ends(scene: Scene, code: int, remedy: str) -> None:
    scene.write(1)
    scene.collector.fault = status(code)
    shipper = scene.shipper()
    for _ in range(3):
        scene.now += 100
        shipper.step()
    assert len(scene.collector.puts) == 3
    assert len(scene.notices) == 1
    assert remedy in scene.notices[0]
    assert len(scene.spool.waiting()) == 1
    scene.collector.fault = None
    scene.now += 100
    shipper.step()
    assert scene.notices[1:] == ["the collector takes segments again"]
    assert sorted(scene.collector.stored) == [path_of(1)]


def test_another_kind_of_failure_is_said_as_well(scene: Scene) -> None:
    scene.write(1)
    shipper = scene.shipper()
    for fault in (no_answer, status(503), status(401), no_answer):
        scene.collector.fault = fault
        scene.now += 100
        shipper.step()
    said = ["does not answer (Connection refused);" in line for line in scene.notices]
    assert said == [True, False, True], "without Python's number of it"


def test_a_refused_token_is_read_again(scene: Scene) -> None:
    tokens, seen = ["second", "third"], list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["Authorization"])
        ok = request.headers["Authorization"] == "Bearer third"
        return httpx.Response(201 if ok else 401, json={"outcome": "stored", "acknowledged": ok})

    client = CollectorClient(URL, "first", connections_to(answer), token_now=lambda: tokens.pop(0))
    scene.write(1)
    shipper = Shipper(client, [scene.spool], SpoolLimits(LIMIT), scene.note, lambda: scene.now, scene.pause)
    shipper.step()
    assert seen == ["Bearer first", "Bearer second", "Bearer third"]
    assert scene.spool.waiting() == []


@pytest.mark.parametrize("code", [409, 413, 415])
def test_a_segment_that_is_refused_for_what_it_is_does_not_stop_the_others(scene: Scene, code: int) -> None:
    for number in (1, 2, 3):
        scene.write(number)

    def fault(request: httpx.Request) -> httpx.Response:
        if request.url.path == path_of(2):
            return httpx.Response(code, json={"detail": "not this one"})
        scene.collector.stored[request.url.path] = request.content
        return httpx.Response(201, json={"outcome": "stored", "acknowledged": True})

    scene.collector.fault = fault
    assert scene.shipper().close()
    assert sorted(scene.collector.stored) == [path_of(1), path_of(3)]
    assert list(scene.collector.closed.values()) == [b'{"last_number":3,"lost_count":1}']
    (kept,) = scene.spool.folder.glob("*.refused")
    assert len(scene.notices) == 1
    assert str(kept) in scene.notices[0]
    assert scene.events == [(logging.WARNING, {"segment": 2})]
    assert kept.read_bytes() == b"segment"


def test_a_mistake_of_ours_ends_no_deliveries(scene: Scene) -> None:
    scene.write(1)
    raised, sent = threading.Event(), threading.Event()

    def raise_once(request: httpx.Request) -> httpx.Response:
        if not raised.is_set():
            raised.set()
            raise ZeroDivisionError("a mistake")
        sent.set()
        return httpx.Response(201, json={"outcome": "stored", "acknowledged": True})

    scene.collector.fault = raise_once
    shipper = scene.shipper()
    scene.now = 0.0
    running = ShippingThread(shipper)
    assert raised.wait(60)
    for _ in range(600):
        scene.now += 1e6  # the mistake may be noted only now
        if sent.wait(0.1):
            break
    assert sent.is_set()
    assert running.stop()
    assert "sending failed (ZeroDivisionError: a mistake)" in scene.notices[0]


def test_what_was_refused_makes_room_for_what_waits(scene: Scene) -> None:
    scene.write(1, bytes(600))
    place = scene.spool.set_aside(1, scene.spool.waiting()[0][1])
    scene.write(2, bytes(300))
    assert trim([scene.spool], SpoolLimits(LIMIT)) == 0
    assert place.exists()
    scene.write(3, bytes(300))
    assert trim([scene.spool], SpoolLimits(LIMIT)) == 0, "the refused one goes before any that may still be sent"
    assert not place.exists()
    assert scene.spool.state() == SpoolState(last_number=1, lost_count=1)


def test_closing_sends_the_rest_at_once_and_shows_how_many_there_were(scene: Scene) -> None:
    scene.collector.fault = no_answer
    shipper = scene.shipper()
    scene.write(1)
    shipper.step()
    scene.collector.fault = None
    scene.write(2)
    assert shipper.close(), "even while it would wait with the next attempt"
    assert scene.collector.closed == {path_of(0).replace("segments/0", "close"): b'{"last_number":2,"lost_count":0}'}


def every_third_is_cut(collector: FakeCollector) -> Callable[[httpx.Request], httpx.Response]:
    """As a bad link does: of three PUTs two are taken, and of two /close one."""

    def fault(request: httpx.Request) -> httpx.Response:
        if len(collector.puts) % 3 == 0:
            return no_answer(request)
        collector.stored[request.url.path] = request.content
        return httpx.Response(201, json={"outcome": "stored", "acknowledged": True})

    return fault


def test_closing_tries_again_as_long_as_something_is_acknowledged(scene: Scene) -> None:
    for number in range(1, 100):
        scene.write(number, b"s")
    scene.collector.fault = every_third_is_cut(scene.collector)
    assert scene.shipper().close()
    assert len(scene.collector.stored) == 99
    assert 2 * END_SECONDS < scene.now < 99 * FIRST_RETRY_SECONDS, "each failure is the first again"
    assert len(scene.collector.closed) == 1


def test_closing_ends_when_nothing_is_acknowledged_for_long(scene: Scene) -> None:
    scene.write(1)
    scene.collector.fault = no_answer
    shipper = scene.shipper()
    assert not shipper.close()
    assert END_SECONDS <= scene.now < END_SECONDS + 1
    assert len(scene.collector.puts) == 5, "at 0, 0.5, 1.5, 3.5 and 7.5 s"
    assert shipper.waiting_count() == 1


def test_a_close_that_is_cut_is_said_again(scene: Scene) -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return no_answer(request) if len(asked) == 1 else httpx.Response(200, json={})

    scene.spool.discard(1, scene.write(1))

    client = CollectorClient(URL, "", connections_to(answer))
    assert Shipper(client, [scene.spool], SpoolLimits(LIMIT), scene.note, lambda: scene.now, scene.pause).close()
    assert [request.url.path for request in asked] == [path_of(0).replace("segments/0", "close")] * 2
    assert not scene.spool.folder.exists()


def test_a_second_signal_ends_closing_before_the_next_segment(scene: Scene) -> None:
    for number in (1, 2, 3):
        scene.write(number)
    shipper = scene.shipper()
    assert not shipper.close(must_end=lambda: len(scene.collector.puts) == 1)
    assert scene.collector.puts == [path_of(1)]
    assert shipper.waiting_count() == 2
    assert scene.now == 0
    assert scene.collector.closed == {}


def test_the_thread_ends_after_the_segment_on_its_way_and_no_later_than_it_must(scene: Scene) -> None:
    asked, answered = threading.Event(), threading.Event()

    def slow(_request: httpx.Request) -> httpx.Response:
        asked.set()
        answered.wait()
        return httpx.Response(201, json={"outcome": "stored", "acknowledged": True})

    for number in (1, 2):
        scene.write(number)
    scene.collector.fault = slow
    running = ShippingThread(scene.shipper())
    assert asked.wait(60)
    assert not running.stop(must_end=lambda: True), "it is still on its way"
    answered.set()
    assert running.stop()
    assert scene.collector.puts == [path_of(1)]


def test_nothing_is_closed_while_a_segment_waits(scene: Scene) -> None:
    scene.write(1)
    scene.collector.fault = no_answer
    assert not scene.shipper().close()
    assert scene.collector.closed == {}


def destination(folder: Path, session: str = "s1") -> Destination:
    return Destination(URL, session, "", folder, LIMIT)


def folder_of(root: Path, session: str = "s1", incarnation: str = INCARNATION) -> Path:
    return root / "collector%3A8710" / session / "proxy" / incarnation


def leave(folder: Path, *numbers: int, content: bytes = b"left") -> None:
    """What an agent that was killed leaves."""
    folder.mkdir(parents=True)
    for number in numbers:
        (folder / segment_name(f"proxy-{folder.name}", number)).write_bytes(content)


def test_what_earlier_agents_left_is_sent_first_the_oldest_before(tmp_path: Path) -> None:
    leave(folder_of(tmp_path, "s0", LATER), 1)
    leave(folder_of(tmp_path), 4, 5)
    *left, own = open_spools(destination(tmp_path), "proxy")
    assert [(spool.session, spool.incarnation) for spool in left] == [("s1", INCARNATION), ("s0", LATER)]
    assert own.incarnation > LATER
    assert own.next_number() == 1

    scene = Scene(FakeCollector(), own)
    scene.write(1)
    assert scene.shipper(*left).close()
    assert scene.collector.puts == [
        path_of(4), path_of(5), path_of(1, LATER).replace("s1", "s0"), path_of(1, own.incarnation)
    ]  # fmt: skip
    assert len(scene.collector.closed) == 3
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [], "what is sent leaves nothing"


def test_what_a_killed_agent_was_writing_is_rescued(tmp_path: Path) -> None:
    leave(folder_of(tmp_path), 1)
    (folder_of(tmp_path) / f"proxy-{INCARNATION}-000002.pcapng.partial").write_bytes(b"no block")
    left, own = open_spools(destination(tmp_path), "proxy")
    assert left.notices == [
        f"removed proxy-{INCARNATION}-000002.pcapng.partial, left without a packet by an interrupted capture"
    ]
    assert [path.name for path in left.folder.glob("*.pcapng*")] == [f"proxy-{INCARNATION}-000001.pcapng"]
    for spool in (left, own):
        spool.close()


def test_the_spools_of_all_agents_together_are_bounded(tmp_path: Path) -> None:
    for incarnation in (INCARNATION, LATER):
        leave(folder_of(tmp_path, incarnation=incarnation), 1, 2, content=bytes(400))
    *left, own = open_spools(destination(tmp_path), "proxy")
    scene = Scene(FakeCollector(fault=no_answer), own)
    scene.write(1, bytes(400))
    shipper = scene.shipper(*left)
    shipper.step()
    assert [len(spool.waiting()) for spool in (left[1], own)] == [1, 1]
    assert not left[0].folder.exists(), "the collector knows that nothing more comes of it"
    assert "its 3 oldest segments are lost" in scene.notices[0]
    scene.collector.fault = None
    assert shipper.close()
    assert sorted(scene.collector.closed.values(), key=str) == [
        b'{"last_number":1,"lost_count":0}',
        b'{"last_number":2,"lost_count":1}',
        b'{"last_number":2,"lost_count":2}',
    ]


def test_two_agents_cannot_capture_a_host_for_one_session(tmp_path: Path) -> None:
    (first,) = open_spools(destination(tmp_path), "proxy")
    with pytest.raises(ResourceError, match="another agent captures host proxy"):
        open_spools(destination(tmp_path), "proxy")
    (other,) = open_spools(destination(tmp_path, "s2"), "proxy")
    other.close()
    first.close()
    *_, second = open_spools(destination(tmp_path), "proxy")
    second.close()


def test_a_full_spool_loses_its_oldest_segments_and_says_so(scene: Scene) -> None:
    scene.collector.fault = no_answer
    for number in range(1, 6):
        scene.write(number, bytes(400))
    shipper = scene.shipper()
    shipper.step()
    assert [number for number, _ in scene.spool.waiting()] == [4, 5]
    assert "its 3 oldest segments are lost" in scene.notices[0]
    scene.collector.fault = None
    assert shipper.close()
    assert list(scene.collector.closed.values()) == [b'{"last_number":5,"lost_count":3}']


def test_the_newest_segment_stays_however_small_the_limit(scene: Scene) -> None:
    scene.write(1, bytes(100))
    assert trim([scene.spool], SpoolLimits(1)) == 0


@pytest.mark.parametrize("content", [b"", b"\0" * 20, b'{"last_number": "7"}', b"[]", b'{"lost_count": -1}'])
def test_a_damaged_state_is_repaired_from_the_one_before(scene: Scene, content: bytes) -> None:
    spool = Spool(scene.spool.folder, clock=count(0, STATE_SECONDS).__next__)
    for number in (1, 2, 3):
        spool.delete(number, scene.write(number, b"x"))
    (scene.spool.folder / "sent.json").write_bytes(content)
    found = Spool(scene.spool.folder)
    assert found.next_number() == 4
    assert "was damaged" in found.notices[0]
    found.delete(4, scene.write(4))
    again = Spool(scene.spool.folder)
    assert again.next_number() == 5
    assert again.notices == []


def test_a_damaged_state_without_one_before_is_no_end(scene: Scene) -> None:
    (scene.spool.folder / "sent.json").write_bytes(b"")
    scene.write(7)
    assert scene.spool.next_number() == 8
    assert [number for number, _ in scene.spool.waiting()] == [7]


def test_a_full_disk_keeps_what_is_remembered_in_memory(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("tracer.spool.write_durably", full)
        scene.spool.delete(1, scene.write(1))
    assert scene.spool.waiting() == []
    assert scene.spool.next_number() == 2
    scene.spool.discard(2, scene.write(2))
    assert Spool(scene.spool.folder).state() == SpoolState(last_number=2, lost_count=1)


def test_segments_are_bounded_in_number_as_well_since_a_list_of_them_takes_memory(scene: Scene) -> None:
    for number in range(1, 8):
        scene.write(number)
    assert trim([scene.spool], SpoolLimits(LIMIT, segments_count=3)) == 4
    assert [number for number, _ in scene.spool.waiting()] == [5, 6, 7]
    assert trim([scene.spool], SpoolLimits(1, segments_count=3)) == 2, "each is thrown once"


def test_segments_in_memory_are_sent_and_bounded_as_well(scene: Scene) -> None:
    scene.spool.overflow = scene.spool.folder.parent / "memory"
    scene.spool.overflow.mkdir()
    scene.write(1)
    for number in (2, 3, 4):
        (scene.spool.overflow / segment_name(scene.spool.stem, number)).write_bytes(bytes(60))
    assert scene.spool.next_number() == 5
    assert trim([scene.spool], SpoolLimits(LIMIT, memory_bytes=100)) == 2
    assert [number for number, _ in scene.spool.waiting()] == [1, 4]
    assert scene.shipper().close()
    assert sorted(scene.collector.stored) == [path_of(1), path_of(4)]
    assert not scene.spool.overflow.exists()


def test_the_state_is_stored_now_and_then_and_a_loss_at_once(scene: Scene) -> None:
    now = [100.0]
    spool = Spool(scene.spool.folder, clock=lambda: now[0])

    def state_on_disk() -> SpoolState:
        return Spool(scene.spool.folder).state()

    for number in (1, 2):
        spool.delete(number, scene.write(number))
    assert state_on_disk() == SpoolState(1)
    now[0] += STATE_SECONDS
    spool.delete(3, scene.write(3))
    assert state_on_disk() == SpoolState(3)
    spool.delete(4, scene.write(4))
    spool.discard(5, scene.write(5))
    assert state_on_disk() == SpoolState(5, lost_count=1)


def test_an_agent_that_ends_leaves_the_state_of_that_moment(scene: Scene) -> None:
    for number in (1, 2, 3):
        scene.spool.delete(number, scene.write(number))
    scene.spool.close()
    assert Spool(scene.spool.folder).state() == SpoolState(3)


def test_a_segment_is_sent_even_if_its_folder_shows_no_change(scene: Scene) -> None:
    shipper = scene.shipper()
    os.utime(scene.spool.folder, (1, 1))
    shipper.step()
    scene.write(1)
    os.utime(scene.spool.folder, (1, 1))
    shipper.step()
    assert scene.collector.puts == []
    scene.now += LOOK_SECONDS
    shipper.step()
    assert scene.collector.puts == [path_of(1)]


def test_another_users_folder_in_memory_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracer.spool.MEMORY", tmp_path)
    folder = memory_folder()
    assert folder is not None
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    assert memory_folder() is None
    folder.rmdir()
    folder.symlink_to(tmp_path)
    assert memory_folder() is None


def test_the_token_goes_with_every_request(scene: Scene) -> None:
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["Authorization"])
        return httpx.Response(200, json={"acknowledged": True, "status": "ok"})

    client = CollectorClient(URL, "abc", connections_to(answer))
    client.put_segment(scene.spool, 1, b"x")
    client.check()
    assert seen == ["Bearer abc", "Bearer abc"]


def test_errors_are_sorted_by_what_helps(scene: Scene) -> None:
    collector = FakeCollector(fault=status(507))
    with pytest.raises(CollectorDownError, match="507: disk full"):
        collector.client().put_segment(scene.spool, 1, b"x")
    collector.fault = lambda _: httpx.Response(409, text="no JSON")
    with pytest.raises(SegmentRefusedError, match="409: Conflict"):
        collector.client().put_segment(scene.spool, 1, b"x")
    collector.fault = status(405)
    with pytest.raises(CollectorRefusesError, match="405: disk full"):
        collector.client().put_segment(scene.spool, 1, b"x")


@pytest.mark.parametrize("content", [b"<html>another service</html>", b"[]", b"{}", b"null"])
def test_another_service_at_the_url_is_reported(scene: Scene, content: bytes) -> None:
    client = CollectorClient(URL, connect=connections_to(lambda _: httpx.Response(200, content=content)))
    for ask in (client.check, lambda: client.put_segment(scene.spool, 1, b"x")):
        with pytest.raises(CollectorRefusesError, match="is no collector; check the URL"):
            ask()


@pytest.mark.parametrize("url", ["", "collector", "collector:8710", "ftp://collector", "http://", "file:///etc/passwd"])
def test_what_is_no_url_is_reported(url: str) -> None:
    with pytest.raises(InputError, match="is no collector's URL"):
        check_url(url)


def test_a_urls_last_slash_does_not_matter() -> None:
    assert check_url("http://collector:8710/") == URL


def test_an_agent_reports_whether_or_not_its_segments_are_taken(scene: Scene) -> None:
    reports: list[tuple[Delivery, bool]] = []

    def report(delivery: Delivery, *, ended: bool) -> None:
        reports.append((delivery, ended))

    scene.write(1)
    scene.collector.fault = status(401)
    client = scene.collector.client()
    shipper = Shipper(client, [scene.spool], SpoolLimits(LIMIT), scene.note, lambda: scene.now, report=report)
    for scene.now in (0.0, REPORT_SECONDS / 2, REPORT_SECONDS):
        shipper.step()
    assert [delivery.problem[:29] for delivery, _ in reports] == ["", f"the collector at {URL}"[:29]]
    scene.collector.fault = None
    scene.now = 1e6
    shipper.step()
    shipper.report_end()
    assert reports[-1] == (Delivery(1, 0, ""), True)


def test_what_cannot_be_rescued_is_said_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_disk(_folder: Path, _stem: str) -> list[str]:
        raise OSError(errno.EIO, "Input/output error")

    leave(folder_of(tmp_path), 1)
    monkeypatch.setattr("tracer.spool.rescue_partials", broken_disk)
    left, own = open_spools(destination(tmp_path), "proxy")
    assert "cannot be kept now: Input/output error" in left.notices[0]
    assert len(left.waiting()) == 1
    for spool in (left, own):
        spool.close()
