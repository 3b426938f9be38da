"""Where the time of four strangers' requests went, side by side: `python -m benchmarks.ledger_pictures KEPT FOLDER`.

KEPT is what `python -m benchmarks.real_systems --keep KEPT NAMES` left of the scenarios in `SYSTEMS`. Of each the
slowest request's ledger and waterfall, as the viewer shows them, two by two in one picture of each theme:
`FOLDER/ledger-of-bodies-light.png`, `…-dark.png`.
"""

import base64
from html import escape
from pathlib import Path

import click
from playwright.sync_api import Browser

from benchmarks.viewer_session import browser, serve, wait_settled

SYSTEMS = {
    "chunked-slow-server": "a streamed answer, as of server-sent events: the server sleeps between six pieces",
    "slow-writer": "a slow writer: curl uploads what a pipe produces",
    "slow-reader": "a slow reader: the application reads 600 kB piece by piece",
    "lossy-download": "a lossy download: 500 kB, one packet in 50 is dropped",
}
WINDOW = {"width": 1280, "height": 1400}
SCALE = 2
PAPER = {"light": ("#ffffff", "#1f2328"), "dark": ("#0d1117", "#e6edf3")}
PAGE = """<!doctype html><style>
body {{ margin: 0; padding: 12px; width: 1120px; background: {paper}; color: {ink};
       font: 600 15px system-ui, sans-serif; display: grid; grid-template-columns: 1fr 1fr; gap: 20px 24px; }}
figure {{ margin: 0; }} figcaption {{ margin-bottom: 6px; }} img {{ width: 100%; }}
</style>{figures}"""
FIGURE = '<figure><figcaption>{words}</figcaption><img src="data:image/png;base64,{picture}"></figure>'


@click.command()
@click.argument("kept", type=click.Path(path_type=Path, exists=True))
@click.argument("folder", type=click.Path(path_type=Path))
def main(kept: Path, folder: Path) -> None:
    """Draw both pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    with browser() as chromium:
        for theme in PAPER:
            panels = {words: _panel(chromium, kept / name, theme) for name, words in SYSTEMS.items()}
            file = folder / f"ledger-of-bodies-{theme}.png"
            _compose(chromium, panels, theme, file)
            click.echo(str(file))


def _panel(chromium: Browser, run: Path, theme: str) -> bytes:
    """The panel of a run's slowest request."""
    trace = run / "said-tcpdump" / "trace"
    with serve(str(trace)) as url:
        context = chromium.new_context(
            viewport=WINDOW, color_scheme="dark" if theme == "dark" else "light", reduced_motion="reduce",
            device_scale_factor=SCALE,
        )  # fmt: skip
        page = context.new_page()
        page.goto(url)
        count = wait_settled(page)
        page.locator("#requests button").first.click()
        wait_settled(page, count)
        page.wait_for_selector("#waterfall .barlayer")
        boxes = [page.locator(f"#request-{part}").bounding_box() for part in ("details", "waterfall")]
        assert boxes[0] and boxes[1]
        left, top = boxes[0]["x"], boxes[0]["y"]
        height = boxes[1]["y"] + boxes[1]["height"] - top
        picture = page.screenshot(clip={"x": left, "y": top, "width": boxes[0]["width"], "height": height})
        context.close()
    return picture


def _compose(chromium: Browser, panels: dict[str, bytes], theme: str, file: Path) -> None:
    figures = "".join(
        FIGURE.format(words=escape(words), picture=base64.b64encode(picture).decode())
        for words, picture in panels.items()
    )
    paper, ink = PAPER[theme]
    page = chromium.new_page(viewport={"width": 1144, "height": 600})
    page.set_content(PAGE.format(paper=paper, ink=ink, figures=figures), wait_until="load")
    page.screenshot(path=str(file), full_page=True)
    page.close()


if __name__ == "__main__":
    main()
