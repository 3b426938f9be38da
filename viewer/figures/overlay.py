"""Overlays many requests as a density, with some single ones as arrows on top."""

from collections.abc import Sequence
from html import escape

import numpy as np
import plotly.graph_objects as go
from msgspec import Struct

from collector.queries import ROWS_PER_LANE, Arrows, RequestOverlay
from viewer.figures.frame import SCALE, Style, make_figure, unit_of

LANE_PX = 74
HEIGHTS_PX = (260, 900)
COLOUR_LEVELS = 250
"""Steps of colour: a byte for each cell."""


class Strand(Struct, frozen=True):
    """One request's packets, drawn on top."""

    name: str
    link: str
    style: Style
    arrows: Arrows
    zero_ns: int  # the time that is 0 in the picture


def overlay_figure(overlay: RequestOverlay, strands: Sequence[Strand], lane_of: Sequence[int]) -> go.Figure:
    """Lanes × time since the start.

    Arguments: `lane_of` gives the picture's line for each lane of the timeline.
    """
    unit_ns, unit = unit_of(overlay.to_ns - overlay.from_ns)
    figure = go.Figure(_density(overlay, unit_ns, unit))
    for strand in strands:
        figure.add_trace(_arrows(strand, lane_of, unit_ns))
    lanes = range(len(overlay.lanes))
    height = int(np.clip(LANE_PX * (len(overlay.lanes) - 1) + 110, *HEIGHTS_PX))
    return make_figure(
        figure,
        height,
        margin={"l": 150, "r": 18, "t": 28 if strands else 8, "b": 44},
        xaxis={
            "title": {"text": f"since the request's start, {unit}", "standoff": 4},
            "range": [overlay.from_ns / unit_ns, overlay.to_ns / unit_ns],
        },
        yaxis={
            "range": [len(overlay.lanes) - 0.7, -0.3],
            "tickvals": list(lanes),
            "ticktext": [escape(_short(lane)) for lane in overlay.lanes],
        },
    )


def _density(overlay: RequestOverlay, unit_ns: int, unit: str) -> go.Heatmap:
    """Colour by the logarithm, for one request's packet and a thousand's are to be seen both."""
    columns = overlay.counts.shape[1]
    most = max(2, int(overlay.counts.max(initial=1)))
    ticks = [10**power for power in range(12) if 10**power <= most]
    scale = COLOUR_LEVELS / np.log10(most + 1.0)
    width = (overlay.to_ns - overlay.from_ns) / columns / unit_ns
    return go.Heatmap(
        z=np.ceil(np.log10(overlay.counts + 1.0) * scale).astype(np.uint8),
        x0=overlay.from_ns / unit_ns + width / 2,
        dx=width,
        y0=0,
        dy=1 / ROWS_PER_LANE,
        colorscale=SCALE,
        zmin=0,
        zmax=COLOUR_LEVELS,
        hovertemplate=f"%{{x:.4g}} {unit}<extra></extra>",
        colorbar={
            "title": {"text": "packets", "side": "right"},
            "tickvals": [float(np.log10(tick + 1.0) * scale) for tick in ticks],
            "ticktext": [f"{tick:,}" for tick in ticks],
            "thickness": 12,
            "len": 1,
        },
    )


def _arrows(strand: Strand, lane_of: Sequence[int], unit_ns: int) -> go.Scatter:
    """Arrows as a line with gaps, heads at its ends; those that were not seen at both ends are left out."""
    arrows = strand.arrows
    known = (arrows.source < len(lane_of)) & (arrows.target < len(lane_of)) & (arrows.sent_ns > -(1 << 62))
    known &= arrows.received_ns > -(1 << 62)
    lanes = np.asarray(lane_of)
    x = np.full((int(known.sum()), 3), np.nan)
    y = np.full_like(x, np.nan)
    x[:, 0], x[:, 1] = ((times[known] - strand.zero_ns) / unit_ns for times in (arrows.sent_ns, arrows.received_ns))
    y[:, 0], y[:, 1] = lanes[arrows.source[known]], lanes[arrows.target[known]]
    sizes = np.tile([0, 7, 0], len(x))
    return go.Scatter(
        x=x.ravel(),
        y=y.ravel(),
        mode="lines+markers",
        name=escape(strand.name),
        line={"color": strand.style.colour, "width": 1.6, "dash": strand.style.dash},
        marker={
            "symbol": "arrow",
            "angleref": "previous",
            "size": sizes,
            "color": strand.style.colour,
            "line": {"width": 0},
        },
        customdata=[strand.link] * x.size,
        hovertemplate=f"{escape(strand.name)}<extra></extra>",
    )


def _short(lane: str) -> str:
    return lane if len(lane) <= 22 else f"{lane[:21]}…"
