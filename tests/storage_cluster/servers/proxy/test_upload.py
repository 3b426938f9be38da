"""An upload to three servers: who counts, whatever the moment at which each of them answers."""

import asyncio
import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from multidict import CIMultiDict

from storage_cluster.servers.http.backend import BackendAnswer
from storage_cluster.servers.http.messages import Body, Call, Refusal
from storage_cluster.servers.proxy.upload import Upload

NAMES = ("a", "c", "o")


@dataclasses.dataclass
class Server:
    """One PUT as a server sees it: `answers_after` bytes it has its answer ready, -1 before it asks for any."""

    status: int = 201
    answers_after: int | None = None  # None: only when it is waited for
    answer_s: float = 0.0  # how long its answer takes once it is waited for
    taken: bytes = b""
    given_up: bool = False
    is_blocked = False

    @property
    def is_answered(self) -> bool:
        return self.answers_after is not None and len(self.taken) >= self.answers_after

    @property
    def early_status(self) -> int:
        return self.status if self.is_answered else 0

    def send(self, chunk: bytes) -> None:
        assert not self.is_answered
        self.taken += chunk

    def give_up(self) -> None:
        self.given_up = True

    async def answer(self) -> BackendAnswer:
        await asyncio.sleep(self.answer_s)
        return BackendAnswer(self.status)


class Backend:
    """Hands out servers in turn; None for one that is down."""

    def __init__(self, *servers: Server | None) -> None:
        self._servers: Iterator[Server | None] = iter(servers)

    def service(self, name: str, device: object) -> None:
        """Nobody asks it anything."""

    async def upload(self, *_: object) -> Server | None:
        return next(self._servers)


def run(
    *servers: Server | None, chunks: tuple[bytes, ...] = (b"x" * 10, b"y" * 10), others_s: float = 5.0
) -> list[int]:
    """Statuses of those that were counted. Devices are three primaries, then handoffs, in the order of `servers`."""
    devices = [SimpleNamespace(name=f"d{number}", host="h") for number in range(len(servers))]
    ring = SimpleNamespace(primaries=lambda _: devices[:3], handoffs=lambda _: iter(devices[3:]), quorum=2)
    replicas = SimpleNamespace(
        backend=Backend(*servers),
        placement=lambda *_, policy: ("object", policy, ring),
        post_quorum_timeout_s=others_s,
    )
    upload = Upload(replicas, NAMES, [{}, {}, {}])  # type: ignore[arg-type]

    async def body():
        for chunk in chunks:
            yield chunk

    call = Call("PUT", NAMES, {}, CIMultiDict(), Body(body(), sum(map(len, chunks))))
    return sorted(answer.status for answer in asyncio.run(upload.run(call)))


def test_all_get_the_body() -> None:
    servers = [Server(), Server(), Server()]
    assert run(*servers) == [201] * 3
    assert {server.taken for server in servers} == {b"x" * 10 + b"y" * 10}


@pytest.mark.parametrize(("others_s", "counted"), [(5.0, [201] * 3), (0.0, [201] * 2)])
def test_who_answers_after_the_quorum_counts_for_so_long(others_s: float, counted: list[int]) -> None:
    assert run(Server(), Server(answer_s=0.2), Server(), others_s=others_s) == counted


def test_a_server_that_answers_before_the_end_is_sent_still_counts() -> None:
    servers = [Server(answers_after=20) for _ in range(3)]
    assert run(*servers) == [201] * 3


def test_an_empty_body_may_be_stored_before_it_is_asked_for() -> None:
    servers = [Server(answers_after=0) for _ in range(3)]
    assert run(*servers, chunks=()) == [201] * 3
    assert not any(server.given_up for server in servers)


def test_who_answers_in_the_middle_does_not_count() -> None:
    assert run(Server(answers_after=10), Server(), Server()) == [201] * 2
    assert run(Server(500, answers_after=10), Server(), Server()) == [201] * 2


def test_who_refuses_at_the_end_does_not_count() -> None:
    assert run(Server(500, answers_after=20), Server(), Server()) == [201] * 2


def test_a_handoff_takes_the_place_of_who_is_down_or_full() -> None:
    full, handoff, other = Server(507, answers_after=0), Server(), Server()
    assert run(None, full, Server(), handoff, other) == [201] * 3
    assert handoff.taken and other.taken and full.given_up


@pytest.mark.parametrize(("statuses", "refused"), [((507, 507, 507), 503), ((409, 409, 201), 409)])
def test_without_a_majority_it_is_refused(statuses: tuple[int, ...], refused: int) -> None:
    with pytest.raises(Refusal) as raised:
        run(*[Server(status, answers_after=0) for status in statuses])
    assert raised.value.status == refused
