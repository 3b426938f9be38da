"""Renders Plotly figures as PNG in a headless Chromium; without Chromium there are no pictures.

Plotly's own way to files (kaleido) brings a browser of its own; here one that is installed is started once for all
figures: a page draws each, replaces itself by the pictures as text (data URLs), and that text is what Chromium prints.
"""

import base64
import json
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from storage_cluster.bench.paper.points import Notify

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
WIDTH, HEIGHT = 640, 420
PATIENCE_S = 120
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run", "--virtual-time-budget=60000", "--dump-dom"),
)
_PAGE = """<!doctype html><meta charset=utf-8><script>{plotly}</script><body><script>
Promise.all({figures}.map(async ([name, figure, width, height]) => {{
  figure.layout.width = width; figure.layout.height = height;
  return name + " " + await Plotly.toImage(figure, {{format: "png", width, height}});
}})).then((made) => {{ document.body.innerHTML = ""; document.body.textContent = "\\n" + made.join("\\n") + "\\n"; }});
</script>"""


def draw(figures: Mapping[str, Any], folder: Path, notify: Notify, wide: Collection[str] = ()) -> list[Path]:
    """Write NAME.png for each figure, if there is a browser; the files. `wide` ones are twice as wide.

    A figure that states its width has its own size.
    """
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        notify(f"no pictures as PNG: they are drawn by a browser ({', '.join(BROWSERS)}), and none is installed")
        return []
    with tempfile.TemporaryDirectory(prefix="twintap-pictures-") as scratch:
        page = Path(scratch) / "page.html"
        page.write_text(_page(figures, wide), "utf-8")
        argv = [browser, *_FLAGS, f"--user-data-dir={scratch}/profile", page.as_uri()]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            notify(f"no pictures as PNG: {browser} did not end within {PATIENCE_S} s")
            return []
    made = [line.split(" ", 1) for line in done.stdout.splitlines() if " data:image/png;base64," in line]
    if len(made) < len(figures):
        notify(f"{len(figures) - len(made)} of {len(figures)} pictures as PNG could not be drawn by {browser}")
    files = []
    for name, picture in made:
        files.append(folder / f"{name}.png")
        files[-1].write_bytes(base64.b64decode(picture.split(",", 1)[1]))
    return files


def _page(figures: Mapping[str, Any], wide: Collection[str]) -> str:
    from plotly.offline import get_plotlyjs  # noqa: PLC0415  of another extra

    parts = [
        [name, json.loads(figure.to_json()), *_size(figure, WIDTH * (2 if name in wide else 1))]
        for name, figure in figures.items()
    ]
    return _PAGE.format(plotly=get_plotlyjs(), figures=json.dumps(parts).replace("</", "<\\/"))


def _size(figure: Any, width: int) -> tuple[int, int]:
    """Width and height of a picture."""
    own = figure.layout.width
    return (own, figure.layout.height or HEIGHT) if own else (width, HEIGHT)
