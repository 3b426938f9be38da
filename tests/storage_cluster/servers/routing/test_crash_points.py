"""The proxy is killed before and after each of its steps; what it had answered stays, and nothing is left behind."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from storage_cluster.servers.routing.server import RoutingServer
from storage_cluster.topology import RoutingOptions
from tests.helpers.dict_stores import Killed, Steps, World, call_of

KEY = "key"
SMALL, LARGE = b"s" * 10, b"L" * 1000
OPTIONS = {
    "in the database": RoutingOptions(threshold_bytes=100, locations="database", body="whole"),
    "in memory": RoutingOptions(threshold_bytes=100),
}
SCENES: dict[str, tuple[Sequence[bytes | None], bytes | None]] = {
    "a first write": ((), SMALL),
    "a small object replaced by a large one": ((SMALL,), LARGE),
    "a large object replaced by a small one": ((LARGE,), SMALL),
    "a small object replaced by a small one": ((SMALL,), b"t" * 10),
    "a deletion": ((LARGE,), None),
    "a deletion of what had moved": ((SMALL, LARGE), None),
}
"""What was there before (None: a deletion), and the request during which the proxy is killed."""
SWEEP_STEPS_MAX = 40


async def send(server: RoutingServer, body: bytes | None) -> int:
    call = call_of("DELETE", f"/box/{KEY}") if body is None else call_of("PUT", f"/box/{KEY}", body)
    return (await server(call)).status


async def read(server: RoutingServer) -> bytes | None:
    reply = await server(call_of("GET", f"/box/{KEY}"))
    return await reply.read() if reply.status == 200 else None


async def play(world: World, before: Sequence[bytes | None], last: bytes | None, kill_at: int) -> tuple[int, int]:
    """Status of the last request (0 if the proxy was killed), and how many half steps it took."""
    server = world.start()
    for body in before:
        assert await send(server, body) in (200, 204)
    await server.close()
    steps = Steps()
    server = world.start(steps)
    await server.recovery.wait(5)
    begun = len(steps.names)
    steps.kill_at = begun + kill_at
    status = 0
    with contextlib.suppress(Killed):
        status = await send(server, last)
    await server.close()
    return status, len(steps.names) - begun


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("place", OPTIONS)
def test_killed_at_any_step(tmp_path: Path, place: str, scene: str) -> None:
    before, last = SCENES[scene]
    old = before[-1] if before else None

    async def kill_at(at: int) -> int:
        directory = tmp_path / str(at)
        directory.mkdir()
        world = World(directory, OPTIONS[place])
        status, count = await play(world, before, last, at)
        again = world.start()
        found = await read(again)
        assert found == last if status else found in (old, last), world.copies(KEY)
        assert len(world.copies(KEY)) == (found is not None)
        assert await send(again, SMALL) == 200
        assert world.copies(KEY) == {"small": SMALL}
        await again.close()
        return count

    async def all_points() -> None:
        at = 0
        while await kill_at(at) > at:
            at += 1
        assert at >= 4

    asyncio.run(all_points())


@pytest.mark.parametrize("place", OPTIONS)
def test_killed_while_it_clears_up(tmp_path: Path, place: str) -> None:
    async def two_copies(at: int) -> bool:
        directory = tmp_path / str(at)
        directory.mkdir()
        world = World(directory, OPTIONS[place])
        server = world.start()
        assert await send(server, SMALL) == 200
        await server.close()
        world.stores["large"]["box"][KEY] = LARGE, next(world.clock)
        steps = Steps(at)
        server = world.start(steps)
        with contextlib.suppress(asyncio.TimeoutError, Killed):
            await asyncio.wait({server._reading}, timeout=0.05)
        was_killed = len(steps.names) > at
        await server.close()
        again = world.start()
        assert await read(again) == LARGE
        assert world.copies(KEY) == {"large": LARGE}
        await again.close()
        return was_killed

    async def all_points() -> None:
        at = 0
        while at < SWEEP_STEPS_MAX and await two_copies(at):
            at += 1
        assert 10 < at < SWEEP_STEPS_MAX

    asyncio.run(all_points())


def test_the_mean_survives_in_the_database(tmp_path: Path) -> None:
    options = RoutingOptions(rule="mean", threshold_bytes=100, locations="database")

    async def kill() -> None:
        world = World(tmp_path, options)
        server = world.start()
        for body in (b"x" * 10, b"x" * 1000):
            assert await send(server, body) == 200
        await server.close()
        again = world.start()
        assert again.placement.threshold_bytes == 505
        await again.close()

    asyncio.run(kill())
