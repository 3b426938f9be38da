"""To which of several collectors an agent delivers: spread evenly, none lost, none twice, and back when it can."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.helpers.answering import connections_to
from tests.tracer.test_shipping import LIMIT, FakeCollector
from tracer import collector_choice
from tracer.collector_choice import (
    RESOLVE_SECONDS,
    RETURN_SECONDS,
    SILENCE_SECONDS,
    Collectors,
    Place,
    places_of,
    rank,
    several_addresses,
    split_urls,
)
from tracer.errors import InputError
from tracer.segments import segment_name
from tracer.shipping import CollectorClient, CollectorDownError, CollectorRefusesError, Shipper
from tracer.spool import Destination, Spool, SpoolLimits, open_spools

URLS = ("http://one:8710", "http://two:8710", "http://three:8710")
INCARNATION = "20261125T225248-0a1b2c"


def refuses(_request: httpx.Request) -> httpx.Response:
    raise ConnectionRefusedError(111, "Connection refused")


def full(_request: httpx.Request) -> httpx.Response:
    return httpx.Response(507, json={"detail": "no space left"})


def wants_token(_request: httpx.Request) -> httpx.Response:
    return httpx.Response(401, json={"detail": "the token is missing or wrong"})


@dataclass
class Scene:
    """Collectors that answer, or do what `faults` says to every request of theirs; and one agent."""

    spool: Spool
    urls: tuple[str, ...] = URLS
    host: str = "proxy"
    fakes: dict[str, FakeCollector] = field(default_factory=dict)
    faults: dict[str, Callable[[httpx.Request], httpx.Response]] = field(default_factory=dict)
    bodies: dict[str, list[bytes]] = field(default_factory=dict)
    addresses: dict[str, tuple[str, ...]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.order = [str(place) for place in rank(places_of(self.urls, self.addresses_of), self.host)]
        self.collectors = Collectors(
            self.urls,
            self.host,
            self.open_client,
            lambda line, *_, **__: self.said.append(line),
            urls_now=lambda: self.urls,
            addresses_of=self.addresses_of,
            clock=lambda: self.now,
        )
        self.shipper = Shipper(
            self.collectors,
            [self.spool],
            SpoolLimits(LIMIT),
            lambda line, *_, **__: self.said.append(line),
            lambda: self.now,
            self.pause,
        )

    def addresses_of(self, url: str) -> tuple[str, ...]:
        return self.addresses.get(url, ())

    def open_client(self, place: Place) -> CollectorClient:
        fake = self.fakes.setdefault(str(place), FakeCollector())

        def answer(request: httpx.Request) -> httpx.Response:
            self.bodies.setdefault(str(place), []).append(request.read())
            if request.url.path.endswith("/report") and str(place) not in self.faults:
                return httpx.Response(200, json={"received_ns": 1})
            return self.faults.get(str(place), fake.answer)(request)

        return CollectorClient(place.url, "", connections_to(answer), name=str(place))

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def capture(self, *numbers: int) -> None:
        for number in numbers:
            (self.spool.folder / segment_name(self.spool.stem, number)).write_bytes(b"x" * number)

    def numbers(self) -> list[list[int]]:
        """The numbers that each has, in the order of this host."""
        return [sorted(int(path.rpartition("/")[2]) for path in self.fakes[name].stored) for name in self.order]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    spool = Spool(tmp_path / "s1" / "proxy" / INCARNATION)
    spool.open()
    return Scene(spool)


def test_hosts_spread_evenly_and_one_more_collector_takes_only_its_share() -> None:
    hosts = [f"host{number}" for number in range(3000)]
    four = (*URLS, "http://four:8710")
    before = {host: rank(places_of(URLS, lambda _: ()), host)[0] for host in hosts}
    after = {host: rank(places_of(four, lambda _: ()), host)[0] for host in hosts}
    assert all(900 < count < 1100 for count in Counter(before.values()).values())
    moved = [host for host in hosts if before[host] != after[host]]
    assert {after[host].url for host in moved} == {four[-1]}
    assert 650 < len(moved) < 850
    assert rank(places_of(URLS[::-1], lambda _: ()), "a") == rank(places_of(URLS, lambda _: ()), "a")


@pytest.mark.parametrize("fault", [refuses, full, wants_token])
def test_segments_go_on_to_the_next_at_once_and_back_when_the_first_takes_them(
    scene: Scene, fault: Callable[[httpx.Request], httpx.Response]
) -> None:
    first, second, _ = scene.order
    scene.capture(1)
    scene.shipper.step()
    scene.faults[first] = fault
    scene.capture(2, 3)
    scene.shipper.step()
    assert scene.numbers() == [[1], [2, 3], []]
    assert len(scene.said) == 1
    assert first in scene.said[0]
    assert scene.said[0].endswith(f"; segments go to {second} meanwhile")
    assert first in scene.collectors.away()
    asked = len(scene.bodies[first])
    scene.now += RETURN_SECONDS - 1
    scene.capture(4)
    scene.shipper.step()
    assert len(scene.bodies[first]) == asked, "one that failed is left alone for a while"
    scene.now += 1
    scene.capture(5)
    scene.shipper.step()
    assert len(scene.bodies[first]) == asked + 1
    del scene.faults[first]
    scene.now += RETURN_SECONDS
    scene.capture(6)
    scene.shipper.step()
    assert scene.numbers() == [[1, 6], [2, 3, 4, 5], []]
    assert scene.said[1:] == [f"segments go to {first} now"]
    assert scene.collectors.away() == ""
    assert scene.collectors.switches_count == 2
    assert scene.spool.waiting() == []


def test_a_collector_whose_disk_is_full_but_which_is_healthy_is_said_once(scene: Scene) -> None:
    first = scene.order[0]
    scene.fakes[first].fault = full  # of segments alone
    for number in range(1, 6):
        scene.capture(number)
        scene.shipper.step()
        scene.now += RETURN_SECONDS
    assert scene.numbers()[:2] == [[], [1, 2, 3, 4, 5]]
    assert len(scene.said) == 1


def test_while_none_takes_segments_they_wait_and_the_first_that_is_back_has_them(scene: Scene) -> None:
    scene.faults = dict.fromkeys(scene.order, refuses)
    scene.capture(1, 2)
    scene.shipper.step()
    assert scene.said[0].startswith("none of 3 collectors takes segments; the collector at ")
    assert [number for number, _ in scene.spool.waiting()] == [1, 2]
    del scene.faults[scene.order[2]]
    scene.now += 1
    scene.shipper.step()
    assert scene.numbers() == [[], [], [1, 2]], "although it failed less than a while ago"
    assert scene.said[-1] == "the collector takes segments again"


def test_one_that_failed_for_a_moment_does_not_have_the_others_asked_with_each_request(scene: Scene) -> None:
    first, second, third = scene.order
    scene.faults = {first: refuses, second: refuses, third: refuses}
    scene.capture(1)
    scene.shipper.step()
    del scene.faults[second]
    scene.now += 1
    scene.shipper.step()
    asked = len(scene.bodies[first])
    for number in range(2, 6):
        scene.capture(number)
        scene.now += 1
        scene.shipper.step()
    assert scene.numbers() == [[], [1, 2, 3, 4, 5], []]
    assert len(scene.bodies[first]) == asked


def test_a_segment_whose_acknowledgement_was_lost_goes_to_the_next_as_the_same(scene: Scene) -> None:
    first, second, _ = scene.order

    def takes_and_hangs_up(request: httpx.Request) -> httpx.Response:
        scene.fakes[first].answer(request)
        raise TimeoutError("timed out")

    scene.faults[first] = takes_and_hangs_up
    scene.capture(1)
    scene.shipper.step()
    assert scene.fakes[first].stored == scene.fakes[second].stored, "with one name: either has it"
    assert len(scene.fakes[second].stored) == 1
    assert scene.shipper.sent_count == 1


def test_every_collector_that_has_segments_learns_of_the_end(scene: Scene) -> None:
    first, second, third = scene.order
    scene.capture(1)
    scene.shipper.step()
    scene.collectors.report(scene.spool, {"ended": False})
    scene.faults[first] = refuses
    scene.capture(2)
    scene.shipper.step()
    scene.collectors.report(scene.spool, {"ended": False})
    del scene.faults[first]
    scene.now += RETURN_SECONDS
    scene.capture(3)
    scene.shipper.step()
    scene.shipper.close()
    scene.collectors.report(scene.spool, {"ended": True})
    closings = [[json.loads(str(body, "utf-8")) for body in scene.fakes[name].closed.values()] for name in scene.order]
    assert closings == [[{"last_number": 3, "lost_count": 0}]] * 2 + [[]]
    last = [scene.bodies[name][-1] for name in (first, second)]
    assert last == [b'{"ended":true}'] * 2
    assert third not in scene.bodies


def test_a_request_stands_still_for_a_short_time_only_where_there_is_another_collector(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []
    monkeypatch.setattr(CollectorClient, "limit_waiting", lambda _self, seconds: limits.append(seconds))
    several = Collectors(URLS, "a", scene.open_client, lambda *_, **__: None, addresses_of=lambda _: ())
    assert set(limits) == {SILENCE_SECONDS}
    limits.clear()
    several.limit_waiting(6.0)
    assert set(limits) == {2.0}, "of an agent that ends: all of them together"
    limits.clear()
    Collectors(URLS[:1], "a", scene.open_client, lambda *_, **__: None, addresses_of=lambda _: ())
    assert limits == [30.0]


def test_each_address_of_a_name_is_a_collector(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s1" / "proxy" / INCARNATION)
    spool.open()
    name = "http://collectors:8710"
    scene = Scene(spool, (name,), addresses={name: ("10.0.0.1", "10.0.0.2", "fd00::1")})
    assert scene.order[2] == f"{name} (fd00::1)", "a family that the system does not prefer comes last"
    scene.faults[scene.order[0]] = refuses
    scene.capture(1)
    scene.shipper.step()
    assert scene.numbers() == [[], [1], []]
    scene.addresses[name] = ("10.0.0.3",) * 2
    scene.now += RESOLVE_SECONDS
    scene.capture(2)
    scene.shipper.step()
    assert len(scene.fakes[f"{name} (10.0.0.3)"].stored) == 1


def test_a_list_that_changes_is_followed(scene: Scene) -> None:
    scene.capture(1)
    scene.shipper.step()
    taker = scene.order[0]
    scene.urls = tuple(url for url in URLS if url != taker)
    scene.now += RETURN_SECONDS
    scene.capture(2)
    scene.shipper.step()
    assert scene.numbers() == [[1], [2], []]
    assert scene.said == [f"segments go to {scene.order[1]} now"]


def test_the_addresses_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(*sockaddrs: tuple[int, str]) -> None:
        found = [(family, 1, 6, "", (address, 8710)) for family, address in sockaddrs]
        monkeypatch.setattr(collector_choice.socket, "getaddrinfo", lambda *_, **__: found)

    answers((10, "::1"), (2, "127.0.0.1"))
    assert several_addresses("http://localhost:8710") == (), "one machine, by two families"
    answers((2, "10.0.0.1"), (2, "10.0.0.2"))
    assert several_addresses("http://collectors:8710") == ("10.0.0.1", "10.0.0.2")
    assert several_addresses("http://10.0.0.9:8710") == ()


def test_urls_in_a_text() -> None:
    assert split_urls("http://a:1/, https://b,http://a:1") == ("http://a:1", "https://b")
    for text in (",", "http://a:1,ftp://b"):
        with pytest.raises(InputError):
            split_urls(text)


def test_what_an_earlier_agent_left_is_found_whatever_the_order_of_the_list(tmp_path: Path) -> None:
    def spools(urls: str) -> list[Spool]:
        found = open_spools(Destination(urls, "s1", "", tmp_path, LIMIT), "proxy")
        for each in found:
            each.close()
        return found

    (first,) = spools("http://b:1")
    *left, second = spools("http://b:1,http://a:1")
    assert [each.folder for each in left] == [first.folder]
    *left, _ = spools("https://a:1,http://b:1/,http://c:1")
    assert {each.folder for each in left} == {first.folder, second.folder}
    assert [each.incarnation for each in left] == sorted(each.incarnation for each in left)


def test_errors_of_the_operator_come_after_those_that_pass(scene: Scene) -> None:
    scene.faults = dict.fromkeys(scene.order, wants_token)
    with pytest.raises(CollectorRefusesError):
        scene.collectors.check()
    scene.faults[scene.order[2]] = refuses
    with pytest.raises(CollectorDownError):
        scene.collectors.check()
