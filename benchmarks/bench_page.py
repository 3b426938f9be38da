"""Pictures of the load controller's page: `python -m benchmarks.bench_page FOLDER`.

Two drivers wait for work. Two earlier runs are made up (`testkit.load_runs`), one of them with a fault, a lost driver
and a stall at its end. For each theme and size a picture of that run and one of both compared:
`bench-page[-compare]-<theme>-<width>x<height>.png`.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
from playwright.sync_api import Browser, expect

from testkit.chromium import chromium
from testkit.load_runs import Course, write_run

SIZES = ((1280, 720), (1920, 1080), (3840, 2160))
BEFORE, AFTER = "20261125T142000-1", "20261125T150000-2"
THEMES = ("light", "dark")
PATIENCE_MS = 120_000


@contextmanager
def start_service(*argv: str) -> Iterator[str]:
    """A service in a process of its own; the address (or port) in what it says first."""
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen([sys.executable, "-m", *argv], stdout=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stdout
        line = running.stdout.readline()
        found = re.search(r"http://\S+?(?=/? )|^\d+$", line)
        assert found, line
        try:
            yield found[0]
        finally:
            running.terminate()


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--width", "widths", multiple=True, type=int, help="Only these.")
def main(folder: Path, widths: tuple[int, ...]) -> None:
    """Take them."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        drivers = [
            stack.enter_context(
                start_service(
                    "tracer",
                    "bench",
                    "driver",
                    "--listen",
                    "127.0.0.1:0",
                    "--name",
                    name,
                    "--data",
                    str(scratch / name),
                )
            )
            for name in ("d1", "d2")
        ]
        options = [option for url in drivers for option in ("--driver", url)]
        runs = str(scratch / "runs")
        write_runs(scratch / "runs")
        url = stack.enter_context(
            start_service("tracer", "bench", "controller", "--listen", "127.0.0.1:0", *options, "--data", runs)
        )
        browser = stack.enter_context(chromium())
        for size in (size for size in SIZES if not widths or size[0] in widths):
            for theme in THEMES:
                for what in ("", "-compare"):
                    click.echo(take(browser, url, folder, what, theme, size))


def write_runs(folder: Path) -> None:
    """Two runs that have ended: one with a fault, a lost driver and a stall at its end, one without."""
    write_run(folder / AFTER, Course(seconds=90.0, median_ms=5.0, fault=(30.0, 45.0), lost_at=60.0, stall=(85.0, 90.0)))
    write_run(folder / BEFORE, Course(seconds=90.0, seed=2), workers=16)


def take(browser: Browser, url: str, folder: Path, what: str, theme: str, size: tuple[int, int]) -> Path:
    """One picture, of a run or of two compared; its file."""
    scheme = "dark" if theme == "dark" else "light"
    page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page.goto(f"{url}/#{AFTER}")
    expect(page.locator("#report")).to_contain_text("slowest", timeout=PATIENCE_MS)
    page.locator("#stage").select_option("main")
    expect(page.locator("#rate-legend")).not_to_contain_text("prepare", timeout=PATIENCE_MS)
    if what:
        page.locator("#other").select_option(BEFORE)
        expect(page.locator("#differences")).to_contain_text("95 %", timeout=PATIENCE_MS)
    else:
        box = page.locator("#latency").bounding_box()
        assert box
        page.locator("#latency").click(position={"x": box["width"] * 0.985, "y": box["height"] / 2})
        expect(page.locator("#interval")).to_contain_text("from", timeout=PATIENCE_MS)
        page.mouse.move(0, 0)
    file = folder / f"bench-page{what}-{theme}-{size[0]}x{size[1]}.png"
    page.screenshot(path=str(file))
    page.close()
    return file


if __name__ == "__main__":
    main()
