"""How quick the page of a series is: `python -m benchmarks.viewer_series [--hours 720] [--folder PLACE]`.

A made-up month (`testkit.days`; each class of clients' requests has a call between services, too) is opened through
`tracer view` in headless Chromium with software rendering:

- start: from the command to the first answer, and its CPU time; all summaries are read in it;
- first view: from the request for the page to the settled picture of the whole; and the server's CPU time in it;
- settle: from the last event of a gesture (keys that zoom and move, turns of the wheel) until the frame after that in
  which the picture was drawn from the answer; the 60 ms after which a gesture counts as ended are in it;
- the server's memory after that (`RssAnon`).

`load` is the wall time of a busy loop by its CPU time: with more than 1.1 the machine was not at rest. With `--folder`
the series is made there, or taken if it is there. Making a month takes about 1.5 minutes, measuring half a minute.
"""

import contextlib
import random
import re
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path

import click
import psutil
from playwright.sync_api import Page

from benchmarks.viewer_session import server_of
from testkit.chromium import chromium
from testkit.days import DaysRecipe, write_days

GESTURES = 40
SETTLED = "count => window.twintap && window.twintap.state.settledCount > count && !window.twintap.state.moving"
COUNT = "window.twintap.state.settledCount"
KEYS = ("+", "+", "-", "ArrowLeft", "ArrowRight", "n")


@click.command()
@click.option("--hours", default=720, show_default=True)
@click.option("--classes", default=20, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where the series is, or is made.")
def main(hours: int, classes: int, folder: Path | None) -> None:
    """Measure, and print a table."""
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "series"
        if not folder.exists():
            write_days(folder, DaysRecipe(hours=hours, classes=classes, failed_hours=(12,), nothing_hours=(14, 15)))
        begin = time.perf_counter()
        url, server = stack.enter_context(server_of(str(folder)))
        urllib.request.urlopen(f"{url}api/series/state").read()
        print(f"start {time.perf_counter() - begin:.1f} s, CPU {_cpu_s(server):.1f} s")
        page = stack.enter_context(chromium()).new_page(viewport={"width": 1280, "height": 720})
        _measure(page, url, server)
        print(f"load {_load():.2f}")


def _measure(page: Page, url: str, server: psutil.Process) -> None:
    cpu_s, begin = _cpu_s(server), time.perf_counter()
    page.goto(url)
    page.wait_for_function(SETTLED, arg=0)
    print(f"first view {time.perf_counter() - begin:.2f} s, server's CPU {_cpu_s(server) - cpu_s:.2f} s")
    took_ms, cpu_s, chance = [], _cpu_s(server), random.Random(1)
    for number in range(GESTURES):
        if number % 8 == 0:
            page.keyboard.press("0")
            page.wait_for_timeout(400)
        took_ms.append(_gesture_ms(page, chance))
    ordered = sorted(took_ms)
    print(
        f"settle, {GESTURES} gestures: median {statistics.median(ordered):.0f} ms, "
        f"p95 {ordered[int(0.95 * len(ordered)) - 1]:.0f} ms, longest {ordered[-1]:.0f} ms; "
        f"server's CPU {(_cpu_s(server) - cpu_s) / GESTURES * 1000:.0f} ms each"
    )
    status = Path(f"/proc/{server.pid}/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    print(f"server's own memory {int(found[1]) >> 10 if found else 0} MiB")


def _gesture_ms(page: Page, chance: random.Random) -> float:
    """How long it takes to the settled picture, ms, by the page's own clock."""
    count = page.evaluate(COUNT)
    page.evaluate("addEventListener('keydown', () => { window.gestureAt = performance.now(); }, true)")
    page.evaluate("addEventListener('wheel', () => { window.gestureAt = performance.now(); }, true)")
    if chance.random() < 0.5:
        page.keyboard.press(chance.choice(KEYS))
    else:
        page.mouse.move(chance.randint(300, 900), 400)
        for _ in range(3):
            page.mouse.wheel(0, chance.choice((-200, -200, 120)))
    page.wait_for_function(SETTLED, arg=count)
    page.wait_for_timeout(150)
    return float(page.evaluate("window.twintap.state.settledAt - window.gestureAt"))


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _load() -> float:
    wall, cpu = time.perf_counter(), time.process_time()
    while time.process_time() - cpu < 0.2:
        pass
    return (time.perf_counter() - wall) / (time.process_time() - cpu)


if __name__ == "__main__":
    main()
