"""The charts of `tracer bench paper 000` as PNG files, one for each figure, and the table.

    python -m benchmarks.paper_pictures runs/paper-000/report.html FOLDER

Drawn by the page itself in headless Chromium.
"""

import base64
import re
import sys
from pathlib import Path

from testkit.chromium import chromium

WIDTH, HEIGHT = 640, 420
_DRAW = """async ([width, height]) => Promise.all([...document.querySelectorAll(".js-plotly-plot")].map(async (plot) =>
  [plot.layout.title.text, await Plotly.toImage(plot, {format: "png", width, height, scale: 2})]))"""


def draw(report: Path, folder: Path) -> list[Path]:
    """Write the pictures; their files."""
    folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(report.absolute().as_uri())
        files = []
        for title, picture in page.evaluate(_DRAW, [WIDTH, HEIGHT]):
            files.append(folder / (re.sub(r"\W+", "-", title).strip("-").lower() + ".png"))
            files[-1].write_bytes(base64.b64decode(picture.split(",", 1)[1]))
        files.append(folder / "table.png")
        page.locator("table").first.screenshot(path=str(files[-1]))
    return files


if __name__ == "__main__":
    for file in draw(Path(sys.argv[1]), Path(sys.argv[2])):
        print(file)
