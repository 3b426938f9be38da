"""How much scripting the first load of a small trace takes: `python -m benchmarks.first_load TRACE`.

A browser without any cache opens the trace several times, each in a context of its own. Printed are medians: what the
browser's own counters say was spent in scripts, in layout and style, and in all tasks of the page (CDP's
Performance.getMetrics), until the picture is settled and the page is idle; and the time on the clock until the picture
was settled, counted from the navigation.

Limits: times are those of software rendering; other work on the machine makes them longer.
"""

from pathlib import Path
from statistics import median
from typing import Any

import click

from benchmarks.viewer_session import browser, serve

RUNS = 5
IDLE_MS = 1_000
SETTLED = "() => window.twintap && window.twintap.settledCount > 0"
COUNTERS = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration", "TaskDuration")


@click.command()
@click.argument("trace", type=click.Path(exists=True, path_type=Path))
@click.option("--runs", default=RUNS, show_default=True)
def main(trace: Path, runs: int) -> None:
    """Print what the first load of a trace takes."""
    with serve(str(trace)) as url, browser() as chromium:
        found = [_load(chromium, url) for _ in range(runs)]
    for name in found[0]:
        values = sorted(each[name] for each in found)
        click.echo(f"{name}: median {1000 * median(values):.0f} ms ({1000 * values[0]:.0f} to {1000 * values[-1]:.0f})")


def _load(chromium: Any, url: str) -> dict[str, float]:
    """The seconds of one load."""
    context = chromium.new_context(viewport={"width": 1600, "height": 900})
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable")
    page.goto(url)
    page.wait_for_function(SETTLED)
    settled = page.evaluate("window.twintap.settledAt") / 1000
    page.wait_for_timeout(IDLE_MS)
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    context.close()
    return {name: metrics[name] for name in COUNTERS} | {"until settled": settled}


if __name__ == "__main__":
    main()
