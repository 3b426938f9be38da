"""What each gesture takes in the viewer of a given trace: `python -m benchmarks.viewer_gestures TRACE [--runs 5]`.

`benchmarks.viewer` measures how the timeline moves, on traces of any size. This looks at all else that a user does, on
one trace, say one of millions of requests: the timeline's keys, search, the list of packets, and a click on each link
to another page. Headless Chromium with software rendering; the index is made first, in a run of its own.

Printed for each gesture: the first time, then p50, p95 and the longest of the times after it, from the gesture until
the page has been changed for the last time (on the timeline, until its picture is settled); CPU time of the server, the
first time and in the mean after it, which other work on the machine hardly changes; and the most anonymous memory of
the server by then, which a thread looks at all along. What the server keeps is kept for all gestures after it, as it is
for a user, so their order matters.
"""

import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import psutil
from msgspec import Struct
from playwright.sync_api import Page

from benchmarks.viewer import busy_ratio, cpu_ms, make_index, memory_mib, new_page, open_page, p95, rest
from benchmarks.viewer_session import browser, server_of

QUIET_MS, PATIENCE_MS = 500, 120_000
WATCH_S = 0.02
COUNT_FETCHES = """(() => {
    const fetch = window.fetch, asides = /api\\/(bands|slowness|usage|annotations|search\\/words)/;
    window.awaited = window.answeredAt = 0;
    window.fetch = (what, ...more) => {
        const counts = !asides.test(what.url || what);
        window.awaited += counts;
        return fetch(what, ...more).finally(() => (window.awaited -= counts, window.answeredAt = performance.now()));
    };
})()"""
"""How many answers the page waits for; without those that follow when a picture is settled."""
CHANGED = """(quiet) => new Promise((done) => {
    const begin = performance.now(), drawn = ".chart .main-svg";
    let last = 0;
    const seen = new MutationObserver(() => {
        requestAnimationFrame(() => requestAnimationFrame(() => (last = performance.now())));
    });
    const waits = () => window.awaited > 0
        || document.querySelectorAll(drawn).length < document.querySelectorAll(".chart").length;
    seen.observe(document.body, { childList: true, subtree: true, attributes: true });
    ACT;
    const look = () => {
        const isQuiet = performance.now() - Math.max(last, window.answeredAt) > quiet;
        if ((!last || waits() || !isQuiet) && performance.now() - begin < PATIENCE)
            setTimeout(() => requestIdleCallback(look), 20);
        else done(last - begin), seen.disconnect();
    };
    look();
})"""
"""The time until the page has been changed for the last time, and drawn."""
SETTLED = """() => new Promise((done) => {
    const { twintap } = window, count = twintap.settledCount, begin = performance.now();
    ACT;
    const look = () => {
        if (twintap.settledCount > count && !twintap.state.moving) done(twintap.settledAt - begin);
        else if (performance.now() - begin > PATIENCE) done(-1);
        else requestAnimationFrame(look);
    };
    look();
})"""
KEY = 'document.body.dispatchEvent(new KeyboardEvent("keydown", {{ key: "{}", bubbles: true }}))'
FIND = """document.getElementById("search-text").value = "{}";
    document.getElementById("search-text").dispatchEvent(new KeyboardEvent("keydown", {{ key: "Enter" }}))"""
FOLLOW = """(() => {{
    history.pushState({{}}, "", "{}");
    dispatchEvent(new PopStateEvent("popstate"));
    dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
}})()"""
KEYS = (("zoom in", "+"), ("pan", "ArrowRight"), ("zoom out", "-"), ("whole trace", "0"))
SEARCHES = ("GET", ">5ms", "status:5xx", "not status:200")
NOWHERE = "/pages/none"
"""A page that shows next to nothing."""
PAGES = (
    ("Requests", "requests"),
    ("Requests, the first", "requests?order=first"),
    ("Requests, the largest", "requests?order=largest"),
    ("Requests, most in flight", "requests?order=most+in+flight"),
    ("Requests, failed", "requests?outcome=failed"),
    ("Requests, found", "requests?text=%3E5ms"),
    ("Requests, page 100", "requests?page=100"),
    ("Latency", "latency"),
    ("Latency, all classes", "latency?class=all"),
    ("Latency, ok", "latency?outcome=ok"),
    ("Services", "services"),
    ("Services on hosts", "services?nodes=hosts"),
    ("Overlay", "overlay"),
    ("Streams", "streams"),
    ("Quality", "quality"),
    ("Compare", "compare"),
)


class Watched(Struct):
    """A server, and the most anonymous memory that it had since it was looked at last."""

    process: psutil.Process
    most_mib: float = 0.0

    def look(self) -> None:
        """Note its memory."""
        self.most_mib = max(self.most_mib, memory_mib(self.process)[0])


class Times(Struct, frozen=True):
    """A gesture, its times in order, the server's CPU time for each, and the server's most memory."""

    name: str
    took_ms: tuple[float, ...]
    cpu_ms: tuple[float, ...]
    memory_mib: float

    @property
    def row(self) -> str:
        """As a row under `HEAD`."""
        later, cpu = self.took_ms[1:] or self.took_ms, self.cpu_ms[1:] or self.cpu_ms
        times = (
            self.took_ms[0],
            statistics.median(later),
            p95(later),
            max(later),
            self.cpu_ms[0],
            statistics.mean(cpu),
        )
        return f"{self.name:<34}" + "".join(f"{each:9.0f}" for each in (*times, self.memory_mib))


HEAD = f"{'ms':<34}" + "".join(f"{name:>9}" for name in ("first", "p50", "p95", "longest", "CPU, 1st", "CPU", "MiB"))


@click.command()
@click.argument("trace", type=click.Path(exists=True, path_type=Path))
@click.option("--runs", default=5, show_default=True, help="How often each gesture is made after its first time.")
@click.option("--only", type=click.Choice(["timeline", "pages"]), help="Only these.")
def main(trace: Path, runs: int, only: str | None) -> None:
    """Measure, and print a table."""
    make_index(trace)
    click.echo(HEAD)
    with browser() as chromium, new_page(chromium) as page, server_of(str(trace)) as (url, process):
        page.set_default_timeout(PATIENCE_MS)
        page.add_init_script(COUNT_FETCHES)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        with _watching(process) as server:
            found = list(_all(page, url, server, runs, only))
    later = [each for times in found for each in times.took_ms[1:]]
    first = [times.took_ms[0] for times in found]
    for name, values in (("first times", first), ("later times", later)):
        if values:
            click.echo(f"{name}: p50 {statistics.median(values):.0f}, p95 {p95(values):.0f}, longest {max(values):.0f}")
    click.echo(f"errors of scripts: {'; '.join(errors) or 'none'}; load {busy_ratio():.2f}")


def _all(page: Page, url: str, server: Watched, runs: int, only: str | None) -> Iterator[Times]:
    for part, gestures in (("timeline", _timeline), ("pages", _pages)):
        if only in (None, part):
            for each in gestures(page, url, server, runs):
                click.echo(each.row)
                yield each


def _timeline(page: Page, url: str, server: Watched, runs: int) -> Iterator[Times]:
    yield _measure("open", server, runs, lambda: _open_ms(page, url))
    for name, key in KEYS:
        yield _measure(f"key: {name}", server, runs, lambda key=key: _settle(page, KEY.format(key)))
    for words in SEARCHES:
        yield _measure(f"search: {words}", server, runs, lambda words=words: _change(page, FIND.format(words)))
    yield _measure("a packet", server, runs, _packets(page))
    requests = iter(range(runs + 1))
    click_one = 'document.querySelectorAll("#requests button")[{}].click()'
    yield _measure("a request", server, runs, lambda: _change(page, click_one.format(next(requests))))
    yield _measure("its packets as a table", server, runs, lambda: _change(page, KEY.format("l")))
    yield _measure("why it took so long", server, runs, lambda: _change(page, KEY.format("y")))


def _pages(page: Page, url: str, server: Watched, runs: int) -> Iterator[Times]:
    page.goto(f"{url}{NOWHERE[1:]}")
    page.wait_for_selector("#content .nothing")
    for name, path in PAGES:
        yield _measure(name, server, runs, lambda path=path: _page(page, path))


def _page(page: Page, path: str) -> float:
    """From one that shows next to nothing."""
    if not page.url.endswith(NOWHERE):
        _change(page, FOLLOW.format(NOWHERE))
    return _change(page, FOLLOW.format(f"/pages/{path}"))


def _packets(page: Page) -> Callable[[], float]:
    """Selects one packet after the other, each in another place."""
    places = iter(range(1, 1_000))

    def select() -> float:
        hop = next(places) * int(page.evaluate("window.twintap.meta.hops")) // 1_000
        act = f"location.hash = `#hop={hop}&from=0&to=${{window.twintap.meta.duration}}`"
        return _change(page, act)

    return select


def _open_ms(page: Page, url: str) -> float:
    open_page(page, url)
    return float(page.evaluate("window.twintap.settledAt"))


def _settle(page: Page, act: str) -> float:
    rest(page)
    return _ask(page, SETTLED, act)


def _change(page: Page, act: str) -> float:
    return _ask(page, CHANGED, act, QUIET_MS)


def _ask(page: Page, script: str, act: str, given: object = None) -> float:
    """The result of a script in which this gesture is made."""
    found = float(page.evaluate(script.replace("ACT", act).replace("PATIENCE", str(PATIENCE_MS)), given))
    if found < 0:
        raise SystemExit(f"nothing came of {act}")
    return found


def _measure(name: str, server: Watched, runs: int, gesture: Callable[[], float]) -> Times:
    server.most_mib = 0
    took, cpu = list[float](), list[float]()
    for _ in range(runs + 1):
        before = cpu_ms(server.process)
        took.append(gesture())
        cpu.append(cpu_ms(server.process) - before)
    server.look()
    return Times(name, tuple(took), tuple(cpu), server.most_mib)


@contextmanager
def _watching(process: psutil.Process) -> Iterator[Watched]:
    """Its memory is looked at all along."""
    server, ended = Watched(process), threading.Event()

    def watch() -> None:
        while not ended.wait(WATCH_S):
            server.look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield server
    finally:
        ended.set()
        watcher.join()


if __name__ == "__main__":
    main()
