"""A system that is not Swift, on the cluster's hosts: `front` asks `logic`, which asks `stock` and `price` at once.

    client ─▶ front (proxy) ─▶ logic (storage1) ─┬▶ stock (storage2)
                                                 └▶ price (storage3)      and, of every third request, `stock` again

`front` and `logic` are asynchronous, with connections kept and used again by whatever comes next; `stock` and `price`
have a thread for each connection. All work for a random time. The trace id of `traceparent` goes along, and each
service logs what it did as the bundled store does, so the same truth is found in the same way.

    python -m benchmarks.linking.chain serve NAME PORT LOG      one service
    python -m benchmarks.linking.chain load URL AT_ONCE COUNT    requests, so many at once
"""

import asyncio
import json
import random
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TextIO

from aiohttp import ClientSession, TCPConnector, web

from benchmarks.linking.cases import Case
from benchmarks.linking.record import cluster, hosts, keep

PORTS = {"front": 7001, "logic": 7002, "stock": 7003, "price": 7004}
PLACES = {"front": "proxy", "logic": "storage1", "stock": "storage2", "price": "storage3"}
ADDRESSES = {"front": "10.77.0.20", "logic": "10.77.0.31", "stock": "10.77.0.32", "price": "10.77.0.33"}
CALLS = {"front": (("logic",),), "logic": (("stock", "price"),)}
"""Steps of each service's work, and whom it asks at once in each."""
AGAIN_SHARE = 1 / 3
MEAN_WORK_S = 0.002
READY = "ready"


def record(out: Path, at_once: int, count: int) -> None:
    """One run of the chain, kept in `out` as `benchmarks.linking.cases` has it."""
    with tempfile.TemporaryDirectory(prefix="twintap-chain-") as name, cluster(Path(name)) as _:
        logs = Path(name) / "logs"
        with _services(logs):
            url = f"http://{ADDRESSES['front']}:{PORTS['front']}/order"
            load = (sys.executable, "-m", "benchmarks.linking.chain", "load", url, str(at_once), str(count))
            keep(out, Case("chain", "", at_once, ""), Path(name), logs, load)


@contextmanager
def _services(logs: Path) -> Iterator[None]:
    enter = hosts()
    with ExitStack() as stack:
        for name, host in PLACES.items():
            log = logs / host / f"{name}.jsonl"
            log.parent.mkdir(parents=True, exist_ok=True)
            words = [sys.executable, "-m", "benchmarks.linking.chain", "serve", name, str(PORTS[name]), str(log)]
            process = subprocess.Popen([*enter[host], *words], stdout=subprocess.PIPE, text=True)
            stack.callback(_end, process)
            assert process.stdout is not None
            if READY not in process.stdout.readline():
                raise SystemExit(f"linking: {name} does not run on {host}")
        yield


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate()


class _Log:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def write(self, trace_id: str, start_ns: int, peer: tuple[str, int], local: tuple[str, int]) -> None:
        line = {"transaction_id": trace_id, "start_ns": start_ns, "end_ns": time.time_ns()}
        ends = {"peer": f"{peer[0]}:{peer[1]}", "local": f"{local[0]}:{local[1]}"}
        with self._lock:
            self._stream.write(json.dumps(line | ends) + "\n")
            self._stream.flush()


def _work_s() -> float:
    return random.expovariate(1 / MEAN_WORK_S)


def _onward(traceparent: str) -> dict[str, str]:
    """The header for a call: the same trace, a span of its own."""
    version, trace_id, _, flags = traceparent.split("-")
    return {"traceparent": f"{version}-{trace_id}-{secrets.token_hex(8)}-{flags}"}


async def _serve_async(name: str, port: int, log: _Log) -> None:
    async with ClientSession(connector=TCPConnector(limit=0)) as session:

        async def ask(whom: str, traceparent: str) -> None:
            async with session.get(
                f"http://{ADDRESSES[whom]}:{PORTS[whom]}/{whom}", headers=_onward(traceparent)
            ) as answer:
                await answer.read()

        async def handle(request: web.Request) -> web.Response:
            start_ns, traceparent = time.time_ns(), request.headers["traceparent"]
            assert request.transport is not None
            peer, local = (request.transport.get_extra_info(end) for end in ("peername", "sockname"))
            await asyncio.sleep(_work_s())
            for step in CALLS[name]:
                await asyncio.gather(*(ask(whom, traceparent) for whom in step))
                await asyncio.sleep(_work_s())
            if name == "logic" and random.random() < AGAIN_SHARE:
                await ask("stock", traceparent)
            log.write(traceparent.split("-")[1], start_ns, peer, local)
            return web.Response(text="x" * random.randint(10, 3_000))

        app = web.Application()
        app.router.add_get("/{any}", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, ADDRESSES[name], port, backlog=4096).start()
        print(READY, flush=True)
        await asyncio.Event().wait()


def _serve_threads(name: str, port: int, log: _Log) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            start_ns = time.time_ns()
            time.sleep(_work_s())
            body = b"y" * random.randint(10, 3_000)
            log.write(
                self.headers["traceparent"].split("-")[1],
                start_ns,
                self.client_address,
                self.connection.getsockname(),
            )
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            self.wfile.write(head + body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 4096
        daemon_threads = True

    server = Server((ADDRESSES[name], port), Handler)
    print(READY, flush=True)
    server.serve_forever()


async def _load(url: str, at_once: int, count: int) -> None:
    waiting = iter(range(count))
    async with ClientSession(connector=TCPConnector(limit=0)) as session:

        async def worker() -> None:
            for _ in waiting:
                traceparent = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"
                async with session.get(url, headers={"traceparent": traceparent}) as answer:
                    await answer.read()

        await asyncio.gather(*(worker() for _ in range(at_once)))


def main(arguments: list[str]) -> None:
    """Serve, or make load."""
    if arguments[0] == "load":
        asyncio.run(_load(arguments[1], int(arguments[2]), int(arguments[3])))
        return
    name, port, log = arguments[1], int(arguments[2]), Path(arguments[3])
    with log.open("a") as stream:
        if name in CALLS:
            asyncio.run(_serve_async(name, port, _Log(stream)))
        else:
            _serve_threads(name, port, _Log(stream))


if __name__ == "__main__":
    main(sys.argv[1:])
