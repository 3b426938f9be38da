"""What the viewer reads of traces on an object store: `python -m benchmarks.remote_trace [--hops 1000000 --hops …]`.

The store is our own S3 gateway with its servers on loopback, in a process of its own, behind a proxy that holds each
request back for `--delay-ms`, as a LAN and a store's disks do. Made-up traces are written there with their index. Of
each, printed in one row:

- bytes of the tables and of the index; CPU time to make and write the index, by million hops;
- first view: seconds from the start of `tracer view URL` to the first settled picture in headless Chromium with its
  overview, and of these from the request for the page; bytes and requests read of the store by then;
- what a view of a thousandth of the trace, a click on a request and a packet read in addition, and how long the
  server took for each;
- the server's own memory at the end (`RssAnon`).

With `--url` an existing trace is opened instead, on any store.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import click
import psutil

from benchmarks.viewer_session import browser, server_of, wait_settled
from collector.queries.trace_index import publish_index
from collector.trace.objects import objects_at
from collector.trace.reading import Trace
from testkit.loopback_store import LoopbackStore
from testkit.synthetic_trace import TEMPLATE, Recipe, write_long_synthetic_trace

BUCKET = "traces"
RATE_HOPS_PER_S = 166_000
UPLOADS_AT_ONCE = 10_000
HOSTS = 8
KEYS = {"AWS_ACCESS_KEY_ID": "test:tester", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}


@dataclass(frozen=True, slots=True)
class Read:
    """What was read of the store, and the seconds that it took."""

    bytes_count: int
    requests_count: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.bytes_count / 1e6:.2f} MB in {self.requests_count} requests, {self.seconds:.2f} s"


@click.command()
@click.option("--hops", multiple=True, type=int, default=(1_000_000, 10_000_000), show_default=True)
@click.option("--delay-ms", default=1.5, show_default=True, help="By which the proxy holds each request back.")
@click.option("--url", help="Open this trace instead.")
@click.option("--serve", type=click.Path(path_type=Path), hidden=True)
def main(hops: tuple[int, ...], delay_ms: float, url: str | None, serve: Path | None) -> None:
    """Measure, and print a paragraph for each trace."""
    if serve is not None:
        return _serve(serve)
    if url is not None:
        return _measure(url)
    with _store() as port, _delaying_proxy(port, delay_ms / 1e3) as endpoint:
        os.environ.update(KEYS, AWS_ENDPOINT_URL_S3=endpoint)
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        for count in hops:
            url = f"s3://{BUCKET}/{count}"
            _make(url, count)
            _measure(url)
    return None


def _serve(folder: Path) -> None:
    with LoopbackStore(folder, names=(), replicas=1) as store:
        click.echo(store.topology.service("s3").port)
        sys.stdin.read()


@contextmanager
def _store() -> Iterator[int]:
    """The port of a gateway, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="twintap-store-") as folder:
        command = [sys.executable, "-m", "benchmarks.remote_trace", "--serve", folder]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                yield int(process.stdout.readline())
            finally:
                process.stdin.close()


@contextmanager
def _delaying_proxy(port: int, delay_s: float) -> Iterator[str]:
    """The URL of a proxy to a port of loopback that holds back what clients send."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
        while data := await reader.read(1 << 20):
            await asyncio.sleep(delay_s)
            writer.write(data)
            await writer.drain()
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        with suppress(asyncio.CancelledError):  # at the end
            await asyncio.gather(pass_on(reader, back, delay_s), pass_on(there, writer, 0), return_exceptions=True)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(asyncio.start_server(connect, "127.0.0.1", 0, limit=1 << 20), loop)
    yield f"http://127.0.0.1:{server.result().sockets[0].getsockname()[1]}"
    asyncio.run_coroutine_threadsafe(_end_all(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


async def _end_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _make(url: str, hops: int) -> None:
    recipe = Recipe(hops // len(TEMPLATE), HOSTS, hops * 10**9 // RATE_HOPS_PER_S, lost_share=0.002, argv=None)
    write_long_synthetic_trace(url, recipe, UPLOADS_AT_ONCE)
    begin, wall = time.process_time(), time.monotonic()
    publish_index(url)
    spent, took = time.process_time() - begin, time.monotonic() - wall
    objects = objects_at(url)
    assert objects is not None
    tables = Trace(url).stored_bytes()
    index = sum(objects.fs.du(objects.path(".index"), total=False).values())
    click.echo(
        f"\n{hops:,} hops: tables {tables / 1e6:,.0f} MB, index {index / 1e6:,.0f} MB, made in {took:.1f} s "
        f"({spent / hops * 1e6:.2f} s of CPU time for each million)"
    )


def _measure(url: str) -> None:
    with browser() as chromium, _server(url) as (page_url, server, begin):
        page, asked = chromium.new_page(), time.monotonic()
        page.goto(page_url)
        wait_settled(page)
        settled = time.monotonic()
        before = _reads(page_url)
        click.echo(f"  first view: {_difference(before, {'bytes_count': 0, 'requests_count': 0}, settled - begin)}")
        click.echo(
            f"    of these {settled - asked:.2f} s from the request for the page; server's CPU {_cpu_s(server):.2f} s"
        )
        page.close()
        for name, path in _steps(page_url):
            step = time.monotonic()
            urllib.request.urlopen(page_url + path).read()
            took, after = time.monotonic() - step, _reads(page_url)
            click.echo(f"  {name}: {_difference(after, before, took)}")
            before = after
        memory = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{server.pid}/status").read_text())
        assert memory is not None
        click.echo(f"  memory of the server: {int(memory[1]) / 1e3:.0f} MB ({psutil.Process(server.pid).name()})")


@contextmanager
def _server(url: str) -> Iterator[tuple[str, psutil.Process, float]]:
    """As `server_of`, and when its command was started."""
    begin = time.monotonic()
    with server_of(url) as (page_url, server):
        yield page_url, server, begin


def _steps(page_url: str) -> list[tuple[str, str]]:
    """Further requests to the server, by what a user does."""
    duration = int(_json(page_url + "api/meta")["duration"])
    middle = duration // 2
    return [
        ("a thousandth of it in view", f"api/window?from={middle}&to={middle + duration // 1_000}"),
        ("10 ms in view", f"api/window?from={middle}&to={middle + 10_000_000}"),
        ("beside it", f"api/window?from={middle + 10_000_000}&to={middle + 20_000_000}"),
        ("a request: its arrows", "api/requests/1000/arrows"),
        ("a request: its spans", "api/requests/1000/details"),
        ("a packet", "api/hops/100000"),
        ("the next problem", f"api/problems/next?at={middle}"),
    ]


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _json(url: str) -> Any:
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)


def _reads(page_url: str) -> dict[str, Any]:
    found: dict[str, Any] = _json(page_url + "api/reads")
    return found


def _difference(after: dict[str, Any], before: dict[str, Any], seconds: float) -> Read:
    counts = (after[name] - before[name] for name in ("bytes_count", "requests_count"))
    return Read(*counts, seconds)


if __name__ == "__main__":
    main()
