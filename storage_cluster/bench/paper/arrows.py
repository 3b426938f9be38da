"""The paper's packet pictures (15 and 16): a lane for each host, an arrow for each packet, time to the right.

Drawn from what `tracer export --to csv` writes of a trace, so nothing of the tracer is imported. It is the still
picture that the paper printed; `tracer view` shows the same and every packet's facts.
"""

import csv
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

LANES = ("client", "proxy", "storage")
_DATA = "data"
_COLOURS = {"control (SYN, ACK, FIN)": "#8d99ae", _DATA: "#2457c5"}  # what is drawn later is on top


@dataclasses.dataclass(frozen=True)
class Arrow:
    """A packet: from when and where to when and where, ns of the trace."""

    kind: str
    send_host: str
    sent_ns: int
    receive_host: str
    received_ns: int


@dataclasses.dataclass(frozen=True)
class Picture:
    """What a picture shows: arrows, and when the command began whose packets they are (ns of its host, 0: unknown)."""

    title: str
    arrows: tuple[Arrow, ...]
    began_ns: int = 0


def read_picture(title: str, trace: Path, exported: Path) -> Picture:
    """The packets between hosts that were seen at both ends, of a trace that is also exported as CSV."""
    command = json.loads((trace / "trace.json").read_text("utf-8"))["command"]
    with (exported / "hops.csv").open(encoding="utf-8", newline="") as stream:
        arrows = tuple(
            Arrow(
                row["kind"],
                row["send_host"],
                int(row["send_trace_ns"]),
                row["receive_host"],
                int(row["receive_trace_ns"]),
            )
            for row in csv.DictReader(stream)
            if row["send_trace_ns"] and row["receive_trace_ns"] and row["send_host"] != row["receive_host"]
        )
    return Picture(title, arrows, command["started_host_ns"] if command else 0)


def figure(picture: Picture) -> Any:
    """The picture, as a Plotly figure."""
    from plotly import graph_objects as go  # noqa: PLC0415  of another extra

    made = go.Figure()
    first_ns = min((arrow.sent_ns for arrow in picture.arrows), default=0)
    begin_ns = picture.began_ns or first_ns
    present = {host for arrow in picture.arrows for host in (arrow.send_host, arrow.receive_host)}
    lanes = [*(host for host in LANES if host in present), *sorted(present - set(LANES))]
    for name, colour in _COLOURS.items():
        chosen = [arrow for arrow in picture.arrows if (arrow.kind == "data") == (name == _DATA)]
        points = list(_points(chosen, lanes, begin_ns))
        marker = {"symbol": "arrow", "angleref": "previous", "size": [0, 13, 0] * len(chosen), "color": colour}
        x, y = [at for at, _ in points], [lane for _, lane in points]
        made.add_trace(
            go.Scatter(x=x, y=y, name=name, mode="lines+markers", line={"color": colour, "width": 1.5}, marker=marker)
        )
    before_ms = (first_ns - begin_ns) / 1e6
    if before_ms > 0:
        text = f"no packet yet: {before_ms:.0f} ms"
        made.add_vrect(x0=0, x1=before_ms, fillcolor="#8d99ae", opacity=0.2, line_width=0, annotation_text=text)
    made.update_yaxes(tickvals=list(range(len(lanes))), ticktext=lanes, autorange="reversed")
    made.update_xaxes(title_text="ms since the command began" if picture.began_ns else "ms since the first packet")
    made.update_layout(
        title={"text": picture.title, "font": {"size": 20}}, template="plotly_white", height=420, font={"size": 17},
        margin={"l": 80, "r": 20, "t": 50, "b": 40}, legend={"orientation": "h", "y": -0.2},
    )  # fmt: skip
    return made


def _points(arrows: Sequence[Arrow], lanes: Sequence[str], begin_ns: int) -> Iterator[tuple[float | None, int | None]]:
    """Both ends of each arrow, and a gap."""
    place = {host: number for number, host in enumerate(lanes)}
    for arrow in arrows:
        yield (arrow.sent_ns - begin_ns) / 1e6, place[arrow.send_host]
        yield (arrow.received_ns - begin_ns) / 1e6, place[arrow.receive_host]
        yield None, None
