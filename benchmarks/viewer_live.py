"""A page that follows a live trace under load: `python -m benchmarks.viewer_live [--minutes 3] [--rate 1500]`.

Two hosts in network namespaces exchange HTTP requests at an even rate, an agent on each ships to a collector, `tracer
view` follows its live trace, and headless Chromium (software rendering) looks at it. Every ten seconds it prints how
far behind the page says it is, makes of the trace that it went on to, packets in view, drops and what the window had no
room for; the page's heap after its garbage was collected, its elements and listeners; the own memory of the server and
of the collector. What grows all along leaks.

Needs network namespaces, as root or as an ordinary user, and a few seconds for the first make.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import psutil
from playwright.sync_api import CDPSession, Page

from benchmarks.live_latency import CLIENT, PORT, SERVER, SESSION, access_options, shipping_agent
from benchmarks.viewer import memory_mib, page_memory
from benchmarks.viewer_session import browser, server_of, wait_settled
from collector.trace.reading import Trace
from testkit.live_hosts import TRACER, NoNamespacesError, Pair, pair
from tracer.errors import InputError

REPORT_SECONDS = 10
STATE = """() => ({ text: document.getElementById("live-state").textContent, badge: window.twintap.badgeText,
    makes: window.benchmarkMakes.size, requests: window.twintap.meta.requests })"""
COUNT_MAKES = """() => {
    window.benchmarkMakes = new Set();
    setInterval(() => window.benchmarkMakes.add(window.twintap.meta.made), 100);
}"""


@click.command()
@click.option("--minutes", default=3.0, show_default=True)
@click.option("--rate", default=1_500.0, show_default=True, help="Requests a second.")
@click.option("--window", default=10.0, show_default=True, help="Seconds in the live trace.")
def main(minutes: float, rate: float, window: float) -> None:
    """Measure and print."""
    try:
        with tempfile.TemporaryDirectory(prefix="twintap-live-") as folder, pair() as hosts:
            _measure(hosts, Path(folder), 60 * minutes, rate, window)
    except NoNamespacesError as error:
        raise SystemExit(f"viewer_live: no network namespaces here: {error}") from None


def _measure(hosts: Pair, folder: Path, seconds: float, rate: float, window: float) -> None:
    url, live = f"http://{hosts.b.address}:{PORT}", folder / "data" / "sessions" / SESSION / "live"
    at = ("--listen", f"{hosts.b.address}:{PORT}")
    collect = (*TRACER, "collect", "--data", str(folder / "data"), *at, *access_options(folder))
    with (
        hosts.b.running(*collect, "--live-window", str(window), ready="collecting at") as collector,
        hosts.b.running(sys.executable, "-c", SERVER, hosts.b.address, ready="ready"),
        shipping_agent(hosts.a, url, folder),
        shipping_agent(hosts.b, url, folder),
        hosts.a.running(
            sys.executable, "-c", CLIENT, hosts.b.address, str(rate), str(seconds), ready="ready"
        ) as client,
    ):
        _await_make(str(live))
        with _follow(str(live)) as (page, server):
            session, began = page.context.new_cdp_session(page), time.monotonic()
            while client.poll() is None:
                _report(page, session, time.monotonic() - began, server, psutil.Process(collector.pid))
                time.sleep(REPORT_SECONDS)


def _await_make(trace: str) -> None:
    """Until there is a trace with hops of both hosts."""
    while True:
        try:
            if Trace(trace).read("hops", ["state"]).num_rows:
                return
        except InputError:
            pass
        time.sleep(0.2)


@contextmanager
def _follow(trace: str) -> Iterator[tuple[Page, psutil.Process]]:
    with browser() as chromium, server_of(trace) as (url, process):
        page = chromium.new_page(viewport={"width": 1500, "height": 900})
        page.goto(url)
        wait_settled(page)
        page.evaluate(COUNT_MAKES)
        yield page, process


def _report(page: Page, session: CDPSession, at: float, server: psutil.Process, collector: psutil.Process) -> None:
    state = page.evaluate(STATE)
    heap, elements, listeners = page_memory(session)
    click.echo(
        f"{at:4.0f} s: {state['text']}; {state['makes']} makes, {state['badge']}, {state['requests']:,} requests; "
        f"page {heap:.1f} MiB, {elements} elements, {listeners} listeners; "
        f"server {memory_mib(server)[0]:.0f} MiB, collector {memory_mib(collector)[0]:.0f} MiB"
    )


if __name__ == "__main__":
    main()
