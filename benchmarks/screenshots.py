"""Pictures of the viewer: `python benchmarks/screenshots.py TRACE FOLDER`.

Three zooms (the whole trace, its slowest request, the packets in the middle of that request) and a selected request, in
each theme and size. One file for each: `<what>-<theme>-<width>x<height>.png`.
"""

from pathlib import Path

import click
from playwright.sync_api import Browser, Page
from viewer_session import browser, served, wait_settled

SIZES = ((1280, 720), (1920, 1080))
LARGE = (3840, 2160)
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


@click.command()
@click.argument("trace")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--large", is_flag=True, help="Also at 3840×2160.")
def main(trace: str, folder: Path, large: bool) -> None:
    """Take them."""
    folder.mkdir(parents=True, exist_ok=True)
    with served(trace) as url, browser() as chromium:
        for size in (*SIZES, *([LARGE] if large else [])):
            for theme in THEMES:
                _take(chromium, url, folder, theme, size)


def _take(chromium: Browser, url: str, folder: Path, theme: str, size: tuple[int, int]) -> None:
    width, height = size
    context = chromium.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(url)
    count = wait_settled(page)
    page.wait_for_function("() => window.twintap.state.overview !== null")
    _shoot(page, folder / f"overview-{theme}-{width}x{height}.png")
    if page.locator("#requests button").count():
        _shoot_request(page, folder, f"{theme}-{width}x{height}", count)
    context.close()


def _shoot_request(page: Page, folder: Path, name: str, count: int) -> None:
    page.locator("#requests button").first.click()
    count = wait_settled(page, count)
    page.wait_for_selector("#waterfall .barlayer")
    page.wait_for_function("() => window.twintap.state.selected !== null")
    _shoot(page, folder / f"request-{name}.png")
    times = page.evaluate(CLOSEST.replace("PACKETS", str(PACKETS)))
    page.keyboard.press("Escape")
    page.evaluate(f"location.hash = '#from={times[0]}&to={times[1]}'")
    wait_settled(page, count)
    _shoot(page, folder / f"packets-{name}.png")


def _shoot(page: Page, path: Path) -> None:
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.screenshot(path=str(path))
    click.echo(str(path))


if __name__ == "__main__":
    main()
