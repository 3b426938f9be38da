"""Colours of the style sheet: text is read with 4.5:1, marks are seen with 3:1, in both themes; classes of arrows stay
apart for colour-blind eyes, or differ in shape.

Source: WCAG 2.2 §1.4.3 and §1.4.11 (contrast, relative luminance); Viénot, Brettel, Mollon 1999 for the simulation.
"""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

ASSETS = Path(__file__).parents[2] / "viewer" / "assets"
THEMES = (":root", ':root[data-theme="dark"]')
TEXT = [
    *((ink, paper) for ink in ("ink", "ink-faint", "accent", "warn") for paper in ("paper", "panel")),
    *(("ink", "accent-soft"), ("ink-faint", "accent-soft"), ("accent", "accent-soft"), ("warn", "warn-soft")),
    *(("paper", "accent"),),  # a marked byte
]
"""Text and what it stands on."""
ARROWS = ("data", "handshake", "ack", "again", "lost", "one-sided", "early")
SHAPED = {"ack", "again", "lost", "one-sided", "early"}
"""Drawn unlike a plain arrow: thin, thick, dashed with ×, dotted with a circle (`palette.js`, `arrows.js`)."""
TO_LMS = np.array([[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714], [0.0299566, 0.184309, 1.46709]])
BLIND = {
    "protanopia": np.array([[0, 2.02344, -2.52581], [0, 1, 0], [0, 0, 1]]),
    "deuteranopia": np.array([[1, 0, 0], [0.494207, 0, 1.24827], [0, 0, 1]]),
}


def palette(theme: str) -> dict[str, NDArray[np.float64]]:
    """Colours by name, linear RGB from 0 to 1; the dark theme over the light one."""
    sheet, colours = (ASSETS / "styles" / "tokens.css").read_text(), {}
    for selector in THEMES[: THEMES.index(theme) + 1]:
        block = re.search(rf"^{re.escape(selector)} \{{(.*?)^\}}", sheet, re.DOTALL | re.MULTILINE)
        assert block
        for name, value in re.findall(r"--([\w-]+): #([0-9a-f]{6});", block[1]):
            srgb = np.array([int(value[at : at + 2], 16) for at in (0, 2, 4)]) / 255
            colours[name] = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    return colours


def contrast(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """From 1 to 21."""
    light, dark = sorted((float(colour @ (0.2126, 0.7152, 0.0722)) for colour in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_formula() -> None:
    assert contrast(np.ones(3), np.zeros(3)) == pytest.approx(21)
    assert contrast(np.full(3, 0.5), np.full(3, 0.5)) == 1


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("ink", "paper"), TEXT)
def test_text_can_be_read(theme: str, ink: str, paper: str) -> None:
    colours = palette(theme)
    assert contrast(colours[ink], colours[paper]) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("arrow", ARROWS)
def test_arrows_can_be_seen(theme: str, arrow: str) -> None:
    colours = palette(theme)
    assert contrast(colours[f"arrow-{arrow}"], colours["paper"]) >= 3


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", ["slow", "at-once", "background"])
def test_what_is_said_of_requests_can_be_seen(theme: str, name: str) -> None:
    colours = palette(theme)
    assert contrast(colours[name], colours["paper"]) >= 3


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("eye", BLIND)
@pytest.mark.parametrize(("one", "other"), [("arrow-data", "background"), ("slow", "at-once")])
def test_what_is_said_of_requests_differs_for_colour_blind_eyes(theme: str, eye: str, one: str, other: str) -> None:
    colours = palette(theme)
    seen = [np.clip(np.linalg.inv(TO_LMS) @ BLIND[eye] @ TO_LMS @ colours[name], 0, 1) for name in (one, other)]
    assert float(np.abs(np.cbrt(seen[0]) - np.cbrt(seen[1])).max()) >= 0.1


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("eye", BLIND)
def test_plain_arrows_differ_for_colour_blind_eyes_or_in_shape(theme: str, eye: str) -> None:
    colours = palette(theme)
    seen = {
        name: np.clip(np.linalg.inv(TO_LMS) @ BLIND[eye] @ TO_LMS @ colours[f"arrow-{name}"], 0, 1) for name in ARROWS
    }
    for one, other in combinations(ARROWS, 2):
        alike = float(np.abs(np.cbrt(seen[one]) - np.cbrt(seen[other])).max()) < 0.1
        assert not alike or {one, other} & SHAPED, f"{one} and {other}"


def test_what_is_shown_by_shape_is_drawn_so() -> None:
    source = (ASSETS / "draw" / "palette.js").read_text()
    names = re.search(r"CLASS_NAMES = \[(.*?)\]", (ASSETS / "data" / "constants.js").read_text(), re.DOTALL)
    widths = re.search(r"LINE_WIDTHS = \[(.*?)\]", source, re.DOTALL)
    dashes = re.search(r"LINE_DASHES = \[(.*?)\];", source, re.DOTALL)
    assert names and widths and dashes
    classes = re.findall(r'"([\w-]+)"', names[1])
    looks = list(zip(re.findall(r"[\d.]+", widths[1]), re.findall(r"\[.*?\]", dashes[1]), strict=False))
    by_class = dict(zip(classes, looks, strict=False))
    plain = by_class["data"]
    assert by_class["handshake"] == plain
    for name in SHAPED:
        assert by_class[name] != plain, name
