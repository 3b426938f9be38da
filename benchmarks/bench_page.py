"""Pictures of the load controller's page: `python -m benchmarks.bench_page FOLDER`.

Two drivers put load on a server that answers at once (`benchmarks.instant_server`); a run is done, another goes on.
One picture for each theme and size: `bench-page-<theme>-<width>x<height>.png`.
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

SIZES = ((1280, 720), (1920, 1080))
THEMES = ("light", "dark")
PATIENCE_MS = 120_000
WORKLOAD = """
name = "small objects"
[[stage]]
name = "main"
[[stage.work]]
workers = 8
runtime_s = {seconds}
operations = [
  {{ kind = "write", ratio = 20, containers = "c(1)", objects = "s(1,1000)", sizes = "u(1,64)KB" }},
  {{ kind = "read", ratio = 80, containers = "c(1)", objects = "u(1,1000)" }},
]
"""


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
def main(folder: Path) -> None:
    """Take them."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = f"http://127.0.0.1:{stack.enter_context(start_service('benchmarks.instant_server', '0'))}/auth/v1.0"
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
        url = stack.enter_context(
            start_service("tracer", "bench", "controller", "--listen", "127.0.0.1:0", *options, "--data", runs)
        )
        shown = ""
        for seconds, wait in ((6, ["--wait"]), (4, ["--wait"]), (300, [])):
            file = scratch / "small.toml"
            file.write_text(WORKLOAD.format(seconds=seconds))
            argv = [sys.executable, "-m", "tracer", "bench", "submit", url, str(file), "--auth", store, *wait]
            done = subprocess.run(argv, check=True, capture_output=True, text=True)
            shown = done.stdout.splitlines()[0] if wait else shown
        browser = stack.enter_context(chromium())
        for size in SIZES:
            for theme in THEMES:
                click.echo(take(browser, f"{url}/#{shown}", folder, theme, size))


def take(browser: Browser, url: str, folder: Path, theme: str, size: tuple[int, int]) -> Path:
    """One picture; its file."""
    scheme = "dark" if theme == "dark" else "light"
    page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page.goto(url)
    expect(page.locator("#report")).to_contain_text("slowest", timeout=PATIENCE_MS)
    file = folder / f"bench-page-{theme}-{size[0]}x{size[1]}.png"
    page.screenshot(path=str(file))
    page.close()
    return file


if __name__ == "__main__":
    main()
