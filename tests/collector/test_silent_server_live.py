"""A process that stops, speaking a protocol that nobody can read, many requests at once on each of several connections;
and streams on which nothing is owed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.trace.reading import Trace
from testkit.live_hosts import Pair

pytestmark = pytest.mark.live
SERVER = """
import asyncio, os, random, struct, sys
async def answer(number, writer):
    await asyncio.sleep(random.uniform(0.0005, 0.004))
    writer.write(struct.pack("!II", number, 400) + b"r" * 400)
async def serve(reader, writer):
    while True:
        number, size = struct.unpack("!II", await reader.readexactly(8))
        await reader.readexactly(size)
        asyncio.ensure_future(answer(number, writer))
async def main():
    server = await asyncio.start_server(serve, sys.argv[1], 7400)
    print("ready", os.getpid(), flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
CLIENT = """
import asyncio, random, struct, sys, time
async def connection(until):
    reader, writer = await asyncio.open_connection(sys.argv[1], 7400)
    owed = {}
    async def listen():
        while True:
            number, size = struct.unpack("!II", await reader.readexactly(8))
            await reader.readexactly(size)
            owed.pop(number).set_result(None)
    listening = asyncio.ensure_future(listen())
    async def ask(slot):
        count = 0
        while time.monotonic() < until:
            number, count = slot * 100000 + count, count + 1
            owed[number] = asyncio.get_running_loop().create_future()
            writer.write(struct.pack("!II", number, 200) + b"q" * 200)
            await owed[number]
            await asyncio.sleep(random.uniform(0, 0.004))
    await asyncio.gather(*(ask(slot) for slot in range(1, 4)))
    listening.cancel()
    writer.close()
async def main():
    print("asking", flush=True)
    until = time.monotonic() + float(sys.argv[2])
    await asyncio.gather(*(connection(until) for _ in range(4)))
asyncio.run(main())
"""
PUBLISHER = """
import asyncio, os, sys
async def serve(reader, writer):
    await reader.readexactly(9)
    for _ in range(60):
        writer.write(b"e" * 300)
        await asyncio.sleep(0.01)
    await asyncio.sleep(2.5)
    for _ in range(10):
        writer.write(b"e" * 300)
        await asyncio.sleep(0.01)
    writer.close()
async def main():
    server = await asyncio.start_server(serve, sys.argv[1], 7400)
    print("ready", os.getpid(), flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
SUBSCRIBER = """
import asyncio, sys
async def subscribe():
    reader, writer = await asyncio.open_connection(sys.argv[1], 7400)
    writer.write(b"SUBSCRIBE")
    while await reader.read(1000):
        pass
async def main():
    print("asking", flush=True)
    await asyncio.gather(*(subscribe() for _ in range(3)))
asyncio.run(main())
"""
STOP_S = 2.5


def findings_and_trace(
    hosts: Pair, folder: Path, server: str, client: tuple[str, ...], stop: str = ""
) -> tuple[list[dict], str]:
    """Findings of what both do, and the trace; `stop`: which of them stands still for a while, `server` or `client`."""
    with (
        hosts.b.running(sys.executable, "-c", server, hosts.b.address, ready="ready") as serving,
        hosts.a.capture(folder) as ours,
        hosts.b.capture(folder) as theirs,
    ):
        argv = [*hosts.a.enter, sys.executable, "-c", client[0], hosts.b.address, *client[1:]]
        asking = subprocess.Popen(argv, stdout=subprocess.PIPE)
        try:
            assert asking.stdout is not None and asking.stdout.readline() == b"asking\n"
            if stop:
                time.sleep(1.5)
                stopped = serving.pid if stop == "server" else asking.pid
                os.kill(stopped, signal.SIGSTOP)
                time.sleep(STOP_S)
                os.kill(stopped, signal.SIGCONT)
            assert asking.wait(timeout=60) == 0
        finally:
            asking.kill()
            asking.communicate()
        ours.stop(), theirs.stop()
    url = str(folder / "trace")
    analyse(host_sources([f"{host.name}={folder / host.name}" for host in (hosts.a, hosts.b)]), url)
    return Trace(url).read("findings").to_pylist(), url


def test_a_stopped_server_is_silent_whatever_it_speaks(hosts: Pair, tmp_path: Path) -> None:
    found, url = findings_and_trace(hosts, tmp_path, SERVER, (CLIENT, "5"), stop="server")
    (silent,) = (row for row in found if row["kind"] == "server_silent")
    assert (silent["severity"], silent["host"]) == ("warning", "b")
    lasted_s = (silent["to_trace_ns"] - silent["from_trace_ns"]) / 1e9
    assert STOP_S - 0.2 <= lasted_s <= STOP_S + 0.5
    reasons = {row["reason"] for row in Trace(url).read("streams").to_pylist()}
    assert reasons, "what it speaks is no sequence of requests and answers"
    assert reasons <= {"crossed", "several"}, "each connection says so in its own way"


@pytest.mark.parametrize("client", [(CLIENT, "3"), (CLIENT, "5")], ids=["nothing stops", "the client stops"])
def test_a_server_that_owes_nothing_is_not_silent(hosts: Pair, tmp_path: Path, client: tuple[str, ...]) -> None:
    found, _ = findings_and_trace(hosts, tmp_path, SERVER, client, stop="client" if client[1] == "5" else "")
    assert "server_silent" not in {row["kind"] for row in found}


def test_a_publisher_with_nothing_to_say_is_not_silent(hosts: Pair, tmp_path: Path) -> None:
    found, _ = findings_and_trace(hosts, tmp_path, PUBLISHER, (SUBSCRIBER,))
    assert "server_silent" not in {row["kind"] for row in found}
