"""Pictures of the viewer: `PYTHONPATH=. python benchmarks/screenshots.py TRACE FOLDER [--crowd TRACE] [--bench RUN]`.

Each in light and dark at 1280×720 and 1920×1080, with `--large` at 3840×2160 too: the whole trace, its slowest request,
the packets in the middle of that, the list of packets with one explained; of the crowded trace the timeline and all
pages. Once, in light: a live trace, one without a packet, the page without a trace with a wrong file, and what is said
when the server is gone. One file for each, `<what>-<theme>-<width>x<height>.png`.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from playwright.sync_api import Browser, Page

from benchmarks.viewer_session import browser, serve, wait_settled
from testkit.synthetic_trace import Recipe, write_synthetic_trace

SIZES = ((1280, 720), (1920, 1080))
LARGE = (3840, 2160)
PAGES = ("requests", "overlay", "services", "latency", "quality", "bench", "compare")
DRAWN = "() => [...document.querySelectorAll('.chart')].every(chart => chart.querySelector('.main-svg'))"
THEMES = ("light", "dark")
PACKETS = 14
CLOSEST = """() => {
    const { selected } = window.twintap.state;
    const width = selected.to - selected.from;
    if (selected.mode === "density") return [selected.from, selected.from + Math.round(width / 50)];
    const times = [...selected.begin].sort((a, b) => a - b);
    let best = 0;
    for (let at = 0; at + PACKETS < times.length; at++)
        if (times[at + PACKETS] - times[at] < times[best + PACKETS] - times[best]) best = at;
    const from = times[best], to = times[Math.min(best + PACKETS, times.length - 1)];
    return [Math.round(from - 0.1 * (to - from)), Math.round(to + 0.3 * (to - from))];
}"""
"""Where so many packets of the selected request follow each other most closely."""
DROP_TEXT = """() => {
    const data = new DataTransfer();
    data.items.add(new File(["10:26:24.264 proxy-server: PUT /v1/a/c 201\\n"], "proxy.log.pcap"));
    document.dispatchEvent(new DragEvent("drop", { dataTransfer: data, cancelable: true }));
}"""


@click.command()
@click.argument("trace")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--large", is_flag=True, help="Also at 3840×2160.")
@click.option("--crowd", help="A trace of many requests at once, for the pages beside the timeline.")
@click.option("--bench", "run", help="Runs of the load generator for the bench page, if not the crowded trace's own.")
@click.option("--only", type=click.Choice(["trace", "crowd", "states"]), help="Only these.")
def main(trace: str, folder: Path, large: bool, crowd: str | None, run: str | None, only: str | None) -> None:
    """Take them."""
    folder.mkdir(parents=True, exist_ok=True)
    looks = [(theme, size) for size in [*SIZES, *([LARGE] if large else [])] for theme in THEMES]
    with browser() as chromium:
        if only in (None, "trace"):
            with serve(trace) as url:
                for theme, size in looks:
                    _take(chromium, url, folder, theme, size)
        if crowd and only in (None, "crowd"):
            with serve(crowd, *(["--bench", run] if run else [])) as url:
                for theme, size in looks:
                    _take_pages(chromium, url, folder, theme, size)
        if only in (None, "states"):
            _take_states(chromium, folder)


def _take(chromium: Browser, url: str, folder: Path, theme: str, size: tuple[int, int]) -> None:
    with _page(chromium, theme, size) as (page, shoot):
        page.goto(url)
        count = wait_settled(page)
        page.wait_for_function("() => window.twintap.state.overview !== null")
        shoot(folder, "overview")
        if page.locator("#requests button").count():
            _take_request(page, folder, shoot, count)


def _take_request(page: Page, folder: Path, shoot: Callable[[Path, str], None], count: int) -> None:
    page.locator("#requests button").first.click()
    count = wait_settled(page, count)
    page.wait_for_selector("#waterfall .barlayer")
    page.wait_for_function("() => window.twintap.state.selected !== null")
    shoot(folder, "request")
    page.keyboard.press("l")
    page.wait_for_selector(".packet-row.active")
    page.keyboard.press("Enter")
    page.wait_for_selector("#explain-buttons:not([hidden])")
    page.keyboard.press("x")
    page.wait_for_selector("#packet-fields summary")
    shoot(folder, "packet-list")
    page.locator("#packet-scroll").press("Escape")
    times = page.evaluate(CLOSEST.replace("PACKETS", str(PACKETS)))
    page.keyboard.press("Escape")
    count = int(page.evaluate("window.twintap.settledCount"))
    page.evaluate(f"location.hash = '#from={times[0]}&to={times[1]}'")
    wait_settled(page, count)
    shoot(folder, "packets")


def _take_pages(chromium: Browser, url: str, folder: Path, theme: str, size: tuple[int, int]) -> None:
    """Of the crowd: the timeline, and the pages beside it."""
    with _page(chromium, theme, size) as (page, shoot):
        page.goto(url)
        wait_settled(page)
        page.wait_for_function("() => window.twintap.state.overview !== null")
        shoot(folder, "crowd")
        for name in PAGES:
            page.goto(f"{url}pages/{name}")
            page.wait_for_selector("#content h1", timeout=60_000)
            page.wait_for_function(DRAWN)
            shoot(folder, name)


def _take_states(chromium: Browser, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        empty, live = Path(scratch) / "empty", Path(scratch) / "session" / "live"
        write_synthetic_trace(empty, Recipe(uploads_count=0, argv=None))
        with _page(chromium, "light", SIZES[0]) as (page, shoot), serve(str(empty)) as url:
            page.goto(url)
            wait_settled(page)
            shoot(folder, "empty")
        live.parent.mkdir()
        write_synthetic_trace(live, Recipe(uploads_count=40, span_ns=2_000_000_000, lost_share=0.01, argv=None))
        _make_recent(live)
        with _page(chromium, "light", SIZES[0]) as (page, shoot):
            with serve(str(live)) as url:
                page.goto(url)
                wait_settled(page)
                page.wait_for_selector("#live-state:not([hidden])")
                shoot(folder, "live")
            page.keyboard.press("n")
            page.wait_for_selector("#banner.shown")
            shoot(folder, "error")
    with _page(chromium, "light", SIZES[0]) as (page, shoot), serve() as url:
        page.goto(url)
        page.wait_for_selector("#upload-choose:enabled")
        page.evaluate(DROP_TEXT)
        page.wait_for_selector(".upload-file .warning")
        shoot(folder, "upload")


def _make_recent(trace: Path) -> None:
    """As if its last packet had come a second ago."""
    file = trace / "trace.json"
    document = json.loads(file.read_text())
    newest = max(host["last_host_ns"] for host in document["hosts"])
    for host in document["hosts"]:
        host["last_host_ns"] += time.time_ns() - newest - 1_000_000_000
    document["counters"] = [
        {"host": "proxy", "name": "capture_dropped", "severity": "data_loss", "count": 3, "remedy": "a larger ring"}
    ]
    file.write_text(json.dumps(document))


@contextmanager
def _page(chromium: Browser, theme: str, size: tuple[int, int]) -> Iterator[tuple[Page, Callable[[Path, str], None]]]:
    """A page, and what takes its picture under a name."""
    width, height = size
    context = chromium.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
    )
    page = context.new_page()

    def shoot(folder: Path, what: str) -> None:
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        path = folder / f"{what}-{theme}-{width}x{height}.png"
        page.screenshot(path=str(path))
        click.echo(str(path))

    yield page, shoot
    context.close()


if __name__ == "__main__":
    main()
