"""The agent's spool and its sending: nothing lost, each taken once, whatever the collector does."""

import errno
import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from tracer.errors import InputError, ResourceError
from tracer.segments import segment_name
from tracer.shipping import (
    END_SECONDS,
    FIRST_RETRY_SECONDS,
    LONGEST_RETRY_SECONDS,
    CollectorClient,
    CollectorDownError,
    CollectorRefusesError,
    Shipper,
    ShippingThread,
    check_url,
)
from tracer.spool import Destination, Spool, SpoolState, memory_folder, open_spools

URL = "http://collector:8710"


@dataclass
class FakeCollector:
    """Answers as a collector does; `fault` replaces the answer to a PUT."""

    stored: dict[str, bytes] = field(default_factory=dict)
    puts: list[str] = field(default_factory=list)
    closed: dict[str, object] = field(default_factory=dict)
    fault: Callable[[httpx.Request], httpx.Response] | None = None

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if request.method == "PUT":
            self.puts.append(path)
            if self.fault is not None:
                return self.fault(request)
            assert request.headers["X-Content-SHA256"] == hashlib.sha256(request.content).hexdigest()
            self.stored[path] = request.content
            return httpx.Response(201, json={"outcome": "stored", "acknowledged": True})
        if path.endswith("/close"):
            self.closed[path] = request.read()
            return httpx.Response(200, json={})
        return httpx.Response(200, json={"hosts": [{"host": "proxy", "last_number": 41}]})

    def client(self, token: str = "") -> CollectorClient:
        return CollectorClient(URL, token, httpx.MockTransport(self.answer))


@dataclass
class Scene:
    """A collector, a spool with what the core writes into it, a clock, and what the operator reads."""

    collector: FakeCollector
    spool: Spool
    now: float = 0.0
    notices: list[str] = field(default_factory=list)

    def shipper(self, *left: Spool) -> Shipper:
        spools = [*left, self.spool]
        return Shipper(self.collector.client(), spools, self.notices.append, lambda: self.now, self.pause)

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def write(self, number: int, content: bytes = b"segment") -> Path:
        path = self.spool.folder / segment_name(self.spool.host, number)
        path.write_bytes(content)
        return path


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    spool = Spool(tmp_path / "s1" / "proxy", limit_bytes=1000)
    assert spool.open()
    yield Scene(FakeCollector(), spool)
    spool.close()


def path_of(number: int) -> str:
    return f"/api/sessions/s1/hosts/proxy/segments/{number}"


def status(code: int, detail: str = "disk full") -> Callable[[httpx.Request], httpx.Response]:
    return lambda _: httpx.Response(code, json={"detail": detail})


def no_answer(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("Connection refused", request=request)


def test_segments_go_in_order_and_are_deleted_when_acknowledged(scene: Scene) -> None:
    for number in (2, 1, 10):
        scene.write(number, b"%d" % number)
    scene.shipper().step()
    assert scene.collector.puts == [path_of(1), path_of(2), path_of(10)]
    assert scene.collector.stored[path_of(10)] == b"10"
    assert scene.spool.waiting() == []
    assert scene.spool.next_number() == 11


def test_partial_segments_are_not_sent(scene: Scene) -> None:
    (scene.spool.folder / "proxy-000001.pcapng.partial").write_bytes(b"half")
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


@pytest.mark.parametrize(
    ("code", "remedy"), [(401, "--token-file"), (404, "check the URL"), (409, "another --session"), (413, "messages")]
)
def test_a_refusal_is_reported_once_and_the_segments_stay(scene: Scene, code: int, remedy: str) -> None:
    scene.write(1)
    scene.collector.fault = status(code)
    shipper = scene.shipper()
    for _ in range(3):
        scene.now += 100
        shipper.step()
    assert len(scene.collector.puts) == 1
    assert len(scene.notices) == 1
    assert remedy in scene.notices[0]
    assert not shipper.close()
    assert len(scene.spool.waiting()) == 1
    assert scene.collector.closed == {}


def test_closing_sends_the_rest_at_once_and_shows_how_many_there_were(scene: Scene) -> None:
    scene.collector.fault = no_answer
    shipper = scene.shipper()
    scene.write(1)
    shipper.step()
    scene.collector.fault = None
    scene.write(2)
    assert shipper.close(), "even while it would wait with the next attempt"
    assert scene.collector.closed == {"/api/sessions/s1/hosts/proxy/close": b'{"last_number":2,"lost_count":0}'}


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

    client = CollectorClient(URL, "", httpx.MockTransport(answer))
    assert Shipper(client, [scene.spool], scene.notices.append, lambda: scene.now, scene.pause).close()
    assert scene.spool.state().closed


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


def test_a_restarted_agent_sends_what_is_left_and_goes_on_counting(tmp_path: Path, scene: Scene) -> None:
    scene.write(1)
    scene.collector.fault = no_answer
    scene.shipper().step()
    scene.spool.close()

    (again,) = open_spools(Destination(URL, "s1", "", tmp_path, 1000), "proxy")
    again.close()
    spool = Spool(scene.spool.folder, 1000)
    assert spool.open()
    assert spool.next_number() == 2
    scene.collector.fault = None
    restarted = Scene(scene.collector, spool)
    restarted.write(2)
    assert restarted.shipper().close()
    assert sorted(scene.collector.stored) == [path_of(1), path_of(2)]
    assert spool.next_number() == 3, "also after all is sent"


def test_numbers_that_the_collector_has_are_not_given_again(scene: Scene) -> None:
    scene.spool.skip_to(scene.collector.client().last_number("s1", "proxy"))
    assert scene.spool.next_number() == 42
    assert scene.collector.client().last_number("s1", "client") == 0


def test_other_sessions_left_by_earlier_agents_are_sent_first_and_closed(tmp_path: Path) -> None:
    def destination(session: str) -> Destination:
        return Destination(URL, session, "", tmp_path, 1000)

    old = Spool(tmp_path / "collector%3A8710" / "s0" / "proxy", 1000)
    old.folder.mkdir(parents=True)
    (old.folder / segment_name("proxy", 1)).write_bytes(b"old")
    done = Spool(tmp_path / "collector%3A8710" / "s2" / "proxy", 1000)
    done.folder.mkdir(parents=True)
    done.skip_to(5)
    done.note_closed()
    spools = open_spools(destination("s1"), "proxy")
    assert [spool.session for spool in spools] == ["s0", "s1"], "what is closed is not sent again"

    scene = Scene(FakeCollector(), spools[-1])
    scene.write(1)
    assert scene.shipper(spools[0]).close()
    assert scene.collector.puts == ["/api/sessions/s0/hosts/proxy/segments/1", path_of(1)]
    assert len(scene.collector.closed) == 2
    for spool in (*spools, *open_spools(destination("s3"), "proxy")):
        assert spool.session == "s3" or not spool.is_unfinished()
        spool.close()


def test_two_agents_cannot_share_a_spool(tmp_path: Path) -> None:
    destination = Destination(URL, "s1", "", tmp_path, 1000)
    (first,) = open_spools(destination, "proxy")
    with pytest.raises(ResourceError, match="another agent captures host proxy"):
        open_spools(destination, "proxy")
    first.close()
    (second,) = open_spools(destination, "proxy")
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


def test_the_newest_segment_stays_however_small_the_limit(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s1" / "proxy", limit_bytes=1)
    assert spool.open()
    (spool.folder / segment_name("proxy", 1)).write_bytes(bytes(100))
    assert spool.trim() == 0
    spool.close()


@pytest.mark.parametrize("content", [b"", b"\0" * 20, b'{"last_number": "7"}', b"[]", b'{"lost_count": -1}'])
def test_a_damaged_state_is_repaired_from_the_one_before(tmp_path: Path, content: bytes) -> None:
    spool = Spool(tmp_path / "s1" / "proxy", 1000)
    spool.folder.mkdir(parents=True)
    for number in (1, 2, 3):
        (spool.folder / segment_name("proxy", number)).write_bytes(b"x")
        spool.delete(number, spool.folder / segment_name("proxy", number))
    (spool.folder / "sent.json").write_bytes(content)
    found = Spool(spool.folder, 1000)
    assert found.next_number() == 4
    assert "was damaged" in found.repaired
    found.skip_to(found.state().last_number)
    assert Spool(spool.folder, 1000).next_number() == 4
    assert Spool(spool.folder, 1000).repaired == ""


def test_a_damaged_state_without_one_before_is_no_end(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s1" / "proxy", 1000)
    spool.folder.mkdir(parents=True)
    (spool.folder / "sent.json").write_bytes(b"")
    (spool.folder / segment_name("proxy", 7)).write_bytes(b"x")
    assert spool.next_number() == 8
    assert [number for number, _ in spool.waiting()] == [7]


def test_a_full_disk_keeps_what_is_remembered_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    spool = Spool(tmp_path / "s1" / "proxy", 1000)
    spool.folder.mkdir(parents=True)
    (spool.folder / segment_name("proxy", 1)).write_bytes(b"x")
    with monkeypatch.context() as patched:
        patched.setattr("tracer.spool.write_durably", full)
        spool.delete(1, spool.folder / segment_name("proxy", 1))
    assert spool.waiting() == []
    assert spool.next_number() == 2
    spool.note_closed()
    assert Spool(spool.folder, 1000).state() == SpoolState(last_number=1, closed=True)


def test_segments_in_memory_are_sent_and_bounded_as_well(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracer.spool.MEMORY_LIMIT_BYTES", 100)
    scene.spool.overflow = scene.spool.folder.parent / "memory"
    scene.spool.overflow.mkdir()
    scene.write(1)
    for number in (2, 3, 4):
        (scene.spool.overflow / segment_name("proxy", number)).write_bytes(bytes(60))
    assert scene.spool.next_number() == 5
    assert scene.spool.trim() == 2
    assert [number for number, _ in scene.spool.waiting()] == [1, 4]
    assert scene.shipper().close()
    assert sorted(scene.collector.stored) == [path_of(1), path_of(4)]
    scene.spool.close()
    assert not scene.spool.overflow.exists()


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


def test_the_token_goes_with_every_request() -> None:
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["Authorization"])
        return httpx.Response(200, json={"acknowledged": True, "hosts": []})

    client = CollectorClient(URL, "abc", httpx.MockTransport(answer))
    client.put_segment("s1", "proxy", 1, b"x")
    client.last_number("s1", "proxy")
    assert seen == ["Bearer abc", "Bearer abc"]


def test_errors_are_sorted_by_whether_trying_again_helps() -> None:
    collector = FakeCollector(fault=status(507))
    with pytest.raises(CollectorDownError, match="507: disk full"):
        collector.client().put_segment("s1", "proxy", 1, b"x")
    collector.fault = lambda _: httpx.Response(409, text="no JSON")
    with pytest.raises(CollectorRefusesError, match="409: Conflict"):
        collector.client().put_segment("s1", "proxy", 1, b"x")


@pytest.mark.parametrize("content", [b"<html>another service</html>", b"[]", b"{}", b"null"])
def test_another_service_at_the_url_is_reported(content: bytes) -> None:
    client = CollectorClient(URL, transport=httpx.MockTransport(lambda _: httpx.Response(200, content=content)))
    for ask in (lambda: client.last_number("s1", "proxy"), lambda: client.put_segment("s1", "proxy", 1, b"x")):
        with pytest.raises(CollectorRefusesError, match="is no collector; check the URL"):
            ask()


@pytest.mark.parametrize("url", ["", "collector", "collector:8710", "ftp://collector", "http://", "file:///etc/passwd"])
def test_what_is_no_url_is_reported(url: str) -> None:
    with pytest.raises(InputError, match="is no collector's URL"):
        check_url(url)


def test_a_urls_last_slash_does_not_matter() -> None:
    assert check_url("http://collector:8710/") == URL
