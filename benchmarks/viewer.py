"""How quick the viewer is in a browser: `python -m benchmarks.viewer [TRACE] [--hops 10000000 --hops …]`.

Headless Chromium with software rendering looks at traces (made-up ones unless one is given) through `tracer view`. Of
each, the index is made first, in a run of its own; then, with the index warm:

- first usable view: from the request for the page to the first settled picture with its overview; and the same from the
  start of the command, with the server's own start;
- settle: from a jump to a place (the address is changed while all is at rest), or from the last event of a wheel
  gesture, until the picture has been painted from the answer, ticks included: when the frame after the one in which it
  is drawn begins (`settledAt` of `timeline.js`). The pause of 60 ms after which a turn of the wheel counts as ended is
  in it;
- frames: time between frames while dragging and while turning the wheel;
- click: from the click on a request to its ledger and its arrows drawn; and to its waterfall, which follows them;
- bytes of the largest answer to a view;
- the server's memory when all this is done: its own (`RssAnon`), and resident (`VmRSS`), which counts the pages of
  mapped files as well: those are the page cache's, and given back when anything else needs them;
- CPU time of the server for a view, which other work on the machine does not change.

`load` is the wall time of a busy loop by its CPU time: with more than about 1.1 the machine was not at rest, and all
wall times are too long by as much or more. Takes about 2 minutes for 10 million hops and 5 for 50 million on a machine
at rest; less than 2 GB of memory to make a trace, 6 GB to index 50 million.

With `--use MINUTES`, a page is used at random for so long instead, and their memory is printed meanwhile:
what grows all along leaks.
"""

import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import psutil
from playwright.sync_api import CDPSession, Page

from benchmarks.viewer_session import browser, server_of, wait_settled
from testkit.synthetic_trace import TEMPLATE, Recipe, write_long_synthetic_trace

SHARES = (0.5, 0.1, 0.01, 0.003, 0.001, 0.0002, 0.00005, 0.000001)
"""Of the trace in view."""
SAMPLES = 20
RATE_HOPS_PER_S = 166_000
UPLOADS_AT_ONCE = 10_000
LARGE_HOPS = 20_000_000
"""From so many on, the goals for 50 million hold."""
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
LARGEST_ANSWER = """() => Math.max(...performance.getEntriesByType("resource")
    .filter((entry) => entry.name.includes("/api/window")).map((entry) => entry.decodedBodySize))"""


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured, and what it must not exceed."""

    name: str
    values: Sequence[float]
    unit: str = "ms"
    goal: float | None = None


@click.command()
@click.argument("trace", required=False)
@click.option("--hops", multiple=True, type=int, default=(10_000_000,), show_default=True, help="Of made-up traces.")
@click.option("--hosts", default=10, show_default=True, help="Of made-up traces.")
@click.option("--keep", type=click.Path(path_type=Path), help="A folder for made-up traces, to be used again.")
@click.option(
    "--use", "minutes", type=float, help="Use a page for so many minutes, and print how much memory it holds."
)
def main(trace: str | None, hops: tuple[int, ...], hosts: int, keep: Path | None, minutes: float | None) -> None:
    """Measure, and print a table for each trace."""
    with tempfile.TemporaryDirectory(prefix="twintap-viewer-") as temporary:
        for count in [0] if trace else hops:
            path = Path(trace) if trace else _make_trace(keep or Path(temporary), count, hosts)
            click.echo(f"\n{path.name}: load {busy_ratio():.2f}")
            make_index(path)
            if minutes is None:
                _print_table(_measure(str(path)))
            else:
                _use(str(path), minutes)


def _make_trace(folder: Path, hops: int, hosts: int) -> Path:
    path, uploads = folder / f"{hops // 1_000_000}M-{hosts}", hops // len(TEMPLATE)
    if not path.exists():
        begin = time.process_time()
        recipe = Recipe(uploads, hosts - 2, hops * 1_000_000_000 // RATE_HOPS_PER_S, lost_share=0.002, argv=None)
        write_long_synthetic_trace(path, recipe, UPLOADS_AT_ONCE)
        click.echo(f"{path.name} made in {time.process_time() - begin:.0f} s of CPU time")
    return path


def make_index(path: Path) -> None:
    """Make the index, in a process of its own, so that its memory is not the server's."""
    code = "import sys, collector.queries as q; q.open_trace(sys.argv[1])"
    begin, before = time.perf_counter(), psutil.Process().cpu_times()
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    after = psutil.Process().cpu_times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    click.echo(f"opened for the first time in {time.perf_counter() - begin:.1f} s, {spent:.1f} s of CPU time")


def busy_ratio() -> float:
    wall, cpu = time.perf_counter(), time.process_time()
    while time.process_time() - cpu < 0.5:
        pass
    return (time.perf_counter() - wall) / 0.5


def _print_table(rows: list[Row]) -> None:
    click.echo(f"{'':<46}{'p50':>8}{'p95':>8}{'worst':>8}{'goal':>8}{'n':>6}")
    for row in rows:
        goal = "" if row.goal is None else f"{row.goal:.0f}"
        missed = " missed" if row.goal is not None and p95(row.values) > row.goal else ""
        figures = (statistics.median(row.values), p95(row.values), max(row.values))
        shown = "".join(f"{figure:8.1f}" if figure < 10 else f"{figure:8.0f}" for figure in figures)
        click.echo(f"{row.name + ', ' + row.unit:<46}{shown}{goal:>8}{len(row.values):6}{missed}")


def p95(values: Sequence[float]) -> float:
    return sorted(values)[-(-95 * len(values) // 100) - 1]


def _measure(trace: str) -> list[Row]:
    rows: list[Row] = []
    with browser() as chromium, new_page(chromium) as page:
        started = time.perf_counter()
        with server_of(trace) as (url, process):
            open_page(page, url)
            whole = (time.perf_counter() - started) * 1_000
            large = int(page.evaluate("window.twintap.meta.hops")) >= LARGE_HOPS
            views = [_time_ms(lambda: open_page(page, url)) for _ in range(3)]
            rows.append(Row("first usable view", views, goal=3_000 if large else 2_000))
            rows.append(Row("first usable view, from the command's start", [whole]))
            rows += _gestures(page, process, settle_goal=150 if large else 120)
            ledgers, waterfalls = zip(*_clicks(page), strict=True)
            rows.append(Row("click on a request to its ledger", ledgers, goal=200))
            rows.append(Row("click on a request to its waterfall", waterfalls))
            rows.append(Row("largest answer to a view", [page.evaluate(LARGEST_ANSWER) / 1_000], "kB", 500))
            rows += _memory(process)
    return rows


@contextmanager
def new_page(chromium: object) -> Iterator[Page]:
    page = chromium.new_page(viewport={"width": 1500, "height": 900}, reduced_motion="reduce")  # type: ignore[attr-defined]
    page.add_init_script("performance.setResourceTimingBufferSize(5000)")
    yield page
    page.close()


def _memory(process: psutil.Process) -> list[Row]:
    own, resident = memory_mib(process)
    return [
        Row("server memory, its own", [own], "MiB", 1_536),
        Row("server memory, resident", [resident], "MiB", 1_536),
    ]


def memory_mib(process: psutil.Process) -> tuple[float, float]:
    """A process's own memory, and its resident memory, mapped files included."""
    lines = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii").splitlines()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "VmRSS"))}
    return kib["RssAnon"] / 1_024, kib["VmRSS"] / 1_024


def _gestures(page: Page, process: psutil.Process, settle_goal: float) -> list[Row]:
    before, rows = cpu_ms(process), []
    jumps = {share: _jumps(page, share) for share in SHARES}
    asked = sum(len(values) for values in jumps.values())
    rows.append(Row("server CPU for a view, mean", [(cpu_ms(process) - before) / asked]))
    rows += [
        Row(f"settle after a jump, {share:g} of the trace", values, goal=settle_goal) for share, values in jumps.items()
    ]
    rows.append(Row("settle after a jump, all", [each for values in jumps.values() for each in values]))
    rows.append(Row("settle after the wheel, all", _wheel_settles(page), goal=settle_goal))
    frames: list[float] = []
    for share in (1, 0.01, 0.001, 0.00005):
        for name, gesture in (("drag", _drag), ("wheel", _wheel)):
            _jump(page, 0.5, share)
            found = _frames(page, gesture)
            rows.append(Row(f"frame, {name} at {share:g}", found))
            frames += found
    return [*rows, Row("frame, all", frames, goal=25)]


def cpu_ms(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system) * 1_000


def _time_ms(act: Callable[[], object]) -> float:
    begin = time.perf_counter()
    act()
    return (time.perf_counter() - begin) * 1_000


def open_page(page: Page, url: str) -> None:
    page.goto("about:blank")
    page.goto(url)
    wait_settled(page)
    page.wait_for_function("() => window.twintap.state.overview !== null")


def _jump(page: Page, at: float, share: float) -> float:
    """From rest, look at `share` of the trace beginning at `at` of it; ms until painted, as the page itself sees it."""
    rest(page)
    return float(
        page.evaluate(
            """([at, share]) => new Promise((done) => {
                const { twintap } = window, count = twintap.settledCount, begin = performance.now();
                const width = Math.max(40, Math.round(twintap.meta.duration * share));
                const from = Math.round(twintap.meta.duration * at);
                location.hash = `#from=${from}&to=${from + width}`;
                const look = () => {
                    if (twintap.settledCount > count) done(twintap.settledAt - begin);
                    else requestAnimationFrame(look);
                };
                look();
            })""",
            [at * (1 - share), share],
        )
    )


def rest(page: Page) -> None:
    """Until nothing is left to do of what was done before: what gestures will stretch."""
    page.wait_for_function("() => !window.twintap.state.moving")
    page.evaluate("() => new Promise((done) => requestIdleCallback(done, { timeout: 1000 }))")


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


def _wheel_settles(page: Page) -> list[float]:
    """From the last event of a turn of the wheel until painted."""
    times = []
    for share in (0.5, 0.05, 0.005, 0.0005):
        for _ in range(3):
            _jump(page, 0.4, share)
            count = page.evaluate("window.twintap.settledCount")
            page.mouse.move(500, 600)
            page.evaluate("""() => {
                const note = () => (window.lastWheel = performance.now());
                document.getElementById("arrows").addEventListener("wheel", note);
            }""")
            for _ in range(8):
                page.mouse.wheel(0, -60)
            wait_settled(page, count)
            times.append(float(page.evaluate("window.twintap.settledAt - window.lastWheel")))
    return times


def _clicks(page: Page, most: int = SAMPLES) -> list[tuple[float, float]]:
    """From a click in the list of requests until its ledger and its arrows are drawn; and until its waterfall is."""
    buttons = page.locator("#requests button")
    times = []
    for at in range(min(most, buttons.count())):
        rest(page)
        ledger, waterfall = page.evaluate(
            """(at) => new Promise((done) => {
                const old = document.querySelector("#request-details h2"), begin = performance.now();
                let ledgerAt = 0;
                const wait = () => {
                    const bars = document.querySelector("#request-waterfall .barlayer .trace");
                    if (bars && ledgerAt) done([ledgerAt, performance.now() - begin]);
                    else requestAnimationFrame(wait);
                };
                document.querySelectorAll("#requests button")[at].click();
                const look = () => {
                    const heading = document.querySelector("#request-details h2");
                    const ledger = document.querySelector("#request-details .ledger");
                    if (heading && heading !== old && ledger && window.twintap.state.selected) {
                        requestAnimationFrame(() => {
                            ledgerAt = performance.now() - begin;
                            wait();
                        });
                    } else requestAnimationFrame(look);
                };
                look();
            })""",
            at,
        )
        times.append((float(ledger), float(waterfall)))
        page.keyboard.press("Escape")
        page.wait_for_function("() => !document.querySelector('#request-details > *, #request-waterfall > *')")
    return times


def _use(trace: str, minutes: float) -> None:
    """Jump, drag, zoom and select at random; a line for each half minute."""
    chance = random.Random(2)
    with browser() as chromium, new_page(chromium) as page, server_of(trace) as (url, process):
        open_page(page, url)
        session, begin, steps = page.context.new_cdp_session(page), time.monotonic(), 0
        click.echo(f"{'s':>6}{'steps':>8}{'heap, MiB':>11}{'elements':>10}{'listeners':>11}{'server, MiB':>13}")
        reported = -1.0
        while (spent := time.monotonic() - begin) < 60 * minutes:
            if spent // 30 > reported:
                reported = spent // 30
                heap, elements, listeners = page_memory(session)
                click.echo(
                    f"{spent:6.0f}{steps:8}{heap:11.1f}{elements:10}{listeners:11}{memory_mib(process)[0]:13.0f}"
                )
            _jump(page, chance.random(), chance.choice(SHARES))
            _frames(page, chance.choice((_drag, _wheel)))
            if steps % 4 == 0:
                _clicks(page, most=2)
            steps += 1


def page_memory(session: CDPSession) -> tuple[float, int, int]:
    """MiB of the page's heap after its garbage was collected, elements, listeners."""
    session.send("HeapProfiler.collectGarbage")
    counters = session.send("Memory.getDOMCounters")
    heap = session.send("Runtime.getHeapUsage")
    return (
        (heap["usedSize"] + heap.get("backingStorageSize", 0)) / 2**20,
        counters["nodes"],
        counters["jsEventListeners"],
    )


if __name__ == "__main__":
    main()
