"""How quick the viewer is in a browser: `PYTHONPATH=. python benchmarks/viewer.py [TRACE] [--hops 10000000]`.

Headless Chromium with software rendering looks at a trace (a made-up one unless given) through `tracer view`:

- first usable view: from the request for the page to the first settled picture with its overview;
- settle: from a jump to a place (the address is changed) until the picture has been painted from the answer;
- frames: time between frames while dragging and while turning the wheel, each for two seconds' worth of events;
- click to details: from the click on a request to its waterfall and its arrows drawn.

The debounce of 90 ms after a gesture is in `settle`, as a user waits for it.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from playwright.sync_api import Page
from viewer_session import browser, served, wait_settled

from tests.helpers.synthetic_trace import TEMPLATE, Recipe, write_synthetic_trace

SHARES = (0.5, 0.1, 0.01, 0.003, 0.001, 0.0002, 0.00005, 0.000001)
"""Of the trace in view."""
SAMPLES = 12
RATE_HOPS_PER_S = 166_000
RECORD_FRAMES = """() => {
    const frames = (window.benchmarkFrames = []);
    let last = performance.now();
    const tick = (now) => {
        frames.push(now - last);
        last = now;
        if (window.benchmarkFrames === frames) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
}"""
TAKE_FRAMES = "() => { const taken = window.benchmarkFrames; window.benchmarkFrames = null; return taken.slice(2); }"
Row = tuple[str, Sequence[float]]


@click.command()
@click.argument("trace", required=False)
@click.option("--hops", default=10_000_000, show_default=True, help="Of the made-up trace.")
def main(trace: str | None, hops: int) -> None:
    """Measure, and print a table of milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        if trace is None:
            trace = str(Path(folder) / "trace")
            write_synthetic_trace(Path(trace), _recipe(hops))
        begin = time.perf_counter()
        with served(trace) as url:
            opened_s = time.perf_counter() - begin
            rows = _measure(url)
    click.echo(f"tracer view answers after {opened_s:.1f} s")
    click.echo(f"{'ms':<36}{'p50':>8}{'p95':>8}{'worst':>8}{'n':>6}")
    for name, values in rows:
        high = sorted(values)[-(-95 * len(values) // 100) - 1]
        click.echo(f"{name:<36}{statistics.median(values):8.0f}{high:8.0f}{max(values):8.0f}{len(values):6}")


def _recipe(hops: int) -> Recipe:
    uploads = hops // len(TEMPLATE)
    span_ns = hops * 1_000_000_000 // RATE_HOPS_PER_S
    return Recipe(uploads, 8, span_ns, lost_share=0.002, argv=None)


def _measure(url: str) -> list[Row]:
    rows: list[Row] = []
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 1500, "height": 900}, reduced_motion="reduce")
        rows.append(("first usable view", [_timed(lambda: _open(page, url)) for _ in range(3)]))
        rows += [(f"settle at {share:g} of the trace", _jumps(page, share)) for share in SHARES]
        for share in (1, 0.001, 0.00005):
            _jump(page, 0.5, share)
            rows.append((f"frame, drag at {share:g}", _frames(page, _drag)))
            rows.append((f"frame, wheel at {share:g}", _frames(page, _wheel)))
        rows.append(("click on a request to its details", _clicks(page)))
    return rows


def _timed(act: Callable[[], object]) -> float:
    begin = time.perf_counter()
    act()
    return (time.perf_counter() - begin) * 1_000


def _open(page: Page, url: str) -> None:
    page.goto("about:blank")
    page.goto(url)
    wait_settled(page)
    page.wait_for_function("() => window.twintap.state.overview !== null")


def _jump(page: Page, at: float, share: float) -> float:
    """Look at `share` of the trace beginning at `at` of it; ms until painted, as the page itself sees it."""
    return float(
        page.evaluate(
            """([at, share]) => new Promise((done) => {
                const { twintap } = window, count = twintap.settledCount, begin = performance.now();
                const width = Math.max(40, Math.round(twintap.meta.duration * share));
                const from = Math.round(twintap.meta.duration * at);
                location.hash = `#from=${from}&to=${from + width}`;
                const look = () => {
                    if (twintap.settledCount > count) done(performance.now() - begin);
                    else requestAnimationFrame(look);
                };
                look();
            })""",
            [at * (1 - share), share],
        )
    )


def _jumps(page: Page, share: float) -> list[float]:
    places = random.Random(1)
    return [_jump(page, places.random(), share) for _ in range(SAMPLES)]


def _frames(page: Page, gesture: Callable[[Page, float, float], None]) -> list[float]:
    box = page.locator("#arrows").bounding_box()
    assert box is not None
    count = page.evaluate("window.twintap.settledCount")
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.evaluate(RECORD_FRAMES)
    gesture(page, box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    frames = page.evaluate(TAKE_FRAMES)
    wait_settled(page, count)
    return [float(each) for each in frames]


def _drag(page: Page, x: float, y: float) -> None:
    page.mouse.down()
    page.mouse.move(x - 300, y, steps=60)
    page.mouse.move(x + 300, y, steps=60)
    page.mouse.up()


def _wheel(page: Page, x: float, y: float) -> None:
    for turn in range(60):
        page.mouse.wheel(0, -30 if turn < 30 else 30)


def _clicks(page: Page) -> list[float]:
    buttons = page.locator("#requests button")
    times = []
    for at in range(min(SAMPLES, buttons.count())):
        times.append(
            float(
                page.evaluate(
                    """(at) => new Promise((done) => {
                        const old = document.querySelector("#request-details h2"), begin = performance.now();
                        document.querySelectorAll("#requests button")[at].click();
                        const look = () => {
                            const heading = document.querySelector("#request-details h2");
                            const drawn = document.querySelector("#waterfall .barlayer path");
                            const there = heading && heading !== old && drawn && window.twintap.state.selected;
                            if (there) done(performance.now() - begin);
                            else requestAnimationFrame(look);
                        };
                        look();
                    })""",
                    at,
                )
            )
        )
        page.keyboard.press("Escape")
        page.wait_for_function("() => document.querySelector('#request-details').childElementCount === 0")
    return times


if __name__ == "__main__":
    main()
