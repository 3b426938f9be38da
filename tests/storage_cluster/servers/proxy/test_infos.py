"""What a proxy remembers of accounts and containers, and what makes it ask again."""

import asyncio

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from storage_cluster.servers.http.backend import BackendAnswer
from storage_cluster.servers.http.messages import Call
from storage_cluster.servers.proxy import infos as module
from storage_cluster.servers.proxy.infos import Infos


class Replicas:
    """Storage servers that count requests and give the answers that a test sets."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.status = 204
        self.answering = asyncio.Event()
        self.answering.set()

    async def first(self, names: tuple[str, ...], method: str, _: object) -> BackendAnswer:
        """One HEAD."""
        assert method == "HEAD"
        self.asked.append(names)
        await self.answering.wait()
        return BackendAnswer(self.status, CIMultiDictProxy(CIMultiDict({"X-Container-Object-Count": "7"})))


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock, to be changed."""
    time_s = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: time_s[0])
    return time_s


def call() -> Call:
    """A request of its own."""
    return Call("GET", ("a", "c", "o"))


def test_what_exists_is_remembered_for_other_requests_for_a_while(now: list[float]) -> None:
    async def run() -> None:
        replicas = Replicas()
        infos = Infos(replicas, 60.0)  # type: ignore[arg-type]
        for _ in range(3):
            assert (await infos.container(call(), "a", "c")).object_count == 7
        assert replicas.asked == [("a",), ("a", "c")]
        now[0] += 60
        await infos.container(call(), "a", "c")
        assert len(replicas.asked) == 4

    asyncio.run(run())


def test_what_does_not_exist_is_asked_about_by_every_request(now: list[float]) -> None:
    async def run() -> None:
        replicas = Replicas()
        replicas.status = 404
        infos = Infos(replicas, 60.0)  # type: ignore[arg-type]
        one = call()
        for _ in range(2):
            assert not (await infos.container(one, "a", "c")).exists
        assert replicas.asked == [("a",)]
        replicas.status = 204
        assert (await infos.container(call(), "a", "c")).exists

    asyncio.run(run())


def test_who_counts_asks_afresh_once_in_a_request(now: list[float]) -> None:
    async def run() -> None:
        replicas = Replicas()
        infos = Infos(replicas, 60.0)  # type: ignore[arg-type]
        await infos.container(call(), "a", "c")
        one = call()
        for _ in range(2):
            await infos.container(one, "a", "c", fresh=True)
        assert replicas.asked == [("a",), ("a", "c"), ("a", "c")]

    asyncio.run(run())


def test_a_change_is_never_hidden_by_what_was_asked_before_it(now: list[float]) -> None:
    async def run() -> None:
        replicas = Replicas()
        infos = Infos(replicas, 60.0)  # type: ignore[arg-type]
        await infos.container(call(), "a", "c")
        infos.forget(call(), "a", "c")
        replicas.answering.clear()
        asking = asyncio.ensure_future(infos.container(call(), "a", "c"))
        await asyncio.sleep(0)
        infos.forget(call(), "a", "c")  # changed while the answer was on its way
        replicas.answering.set()
        await asking
        await infos.container(call(), "a", "c")
        assert replicas.asked.count(("a", "c")) == 3

    asyncio.run(run())
