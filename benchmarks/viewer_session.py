"""A trace opened with `tracer view`, and Chromium looking at it: for measuring and for taking pictures."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--disable-default-apps", "--no-first-run", "--hide-scrollbars"),
]
SETTLED = "() => window.twintap && window.twintap.settledCount > {count} && !window.twintap.state.moving"


@contextmanager
def serve(*arguments: str) -> Iterator[str]:
    """The URL of `tracer view` with these arguments, on a free port of this machine, while the context lasts."""
    with server_of(*arguments) as (url, _):
        yield url


@contextmanager
def server_of(*arguments: str) -> Iterator[tuple[str, psutil.Process]]:
    """As `serve`, with the server's process."""
    tracer = str(Path(sys.executable).with_name("tracer"))
    argv = [tracer, "view", *arguments, "--listen", "127.0.0.1:0", "--no-browser"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if "http://" not in line:
                raise SystemExit(f"tracer view {' '.join(arguments)} did not start")
            yield line[line.index("http://") :].split()[0], psutil.Process(process.pid)
        finally:
            process.terminate()


@contextmanager
def browser() -> Iterator[Browser]:
    """Headless Chromium with software rendering."""
    if not CHROMIUM.exists():
        raise SystemExit(f"{CHROMIUM} is missing; on Debian: apt install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield started
        started.close()


def wait_settled(page: Page, count: int = 0) -> int:
    """Wait until the picture has settled more than `count` times; returns how often it has."""
    page.wait_for_function(SETTLED.format(count=count))
    return int(page.evaluate("window.twintap.settledCount"))
