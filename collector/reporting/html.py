"""Writes a report as one self-contained HTML file, which includes plotly's script for the figures."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collector.annotations.records import Kind
from collector.findings.thresholds import changes_words
from collector.hops.quality_summary import NAMES, Pairing, connection_name, pair_name, trouble_words
from collector.hops.tls_words import line_words
from collector.reporting.comparison import Comparison, StageDifference
from collector.reporting.name_words import names_words
from collector.reporting.report import FindingLine, LoadLine, Report, SpanBar, StageLine
from collector.reporting.scope_words import scope_words
from collector.reporting.served_by import served_words
from collector.reporting.story import Part, Story
from collector.reporting.stream_summary import StreamSummary, group_words, streams_words
from collector.reporting.text import SLOWEST_WORDS, abandoned_words, outcome_words
from collector.requests.link_doubt import describe_links
from collector.trace.durations import in_words, share
from collector.trace.model import CounterInfo
from tracer.errors import MissingDependencyError, ResourceError
from tracer.installation import install_command

STRETCHES = {
    "connect": "#8d99ae",
    "the client's pause": "#d0d4da",
    "request network": "#4a8fe7",
    "work": "#f4a261",
    "response network": "#2a9d8f",
}
"""Colour of each stretch of a span."""

BARE = {"template": "plotly_white", "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)"}
"""A figure with a transparent background, so that it fits the page in dark and light; the page colours text and
lines."""

MOST_STAGES = 9
"""At most so many stages are drawn individually."""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.3rem; font-weight: 600; }} h2 {{ font-size: 1rem; margin-top: 2rem; }}
table {{ border-collapse: collapse; }} td, th {{ padding: .15rem .8rem .15rem 0; text-align: left; }}
.figures td + td {{ text-align: right; font-variant-numeric: tabular-nums; }}
.plot .main-svg {{ background: none !important; }}
.plot :is(.infolayer, .xaxislayer-above, .yaxislayer-above) text {{ fill: CanvasText !important; }}
.plot :is(.gridlayer, .zerolinelayer) path {{ stroke: CanvasText !important; stroke-opacity: .15 !important; }}
.warning, .error {{ border-left: .3rem solid #e76f51; padding-left: .6rem; }}
.notice, .info {{ border-left: .3rem solid #8d99ae; padding-left: .6rem; }}
</style></head><body>
{body}
</body></html>
"""


def write_html(report: Report, path: Path) -> None:
    """Write the report to `path`.

    Raises: `MissingDependencyError` without plotly, `ResourceError` if the file cannot be written.
    """
    page = make_html(report)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ResourceError(f"{path}: cannot write the page ({error.strerror})", "write it elsewhere") from None


def make_html(report: Report) -> str:
    """The report as a page.

    Raises: `MissingDependencyError` without plotly.
    """
    requests = report.requests.slowest
    body = [
        f"<h1>{html.escape(report.story.sentence)}</h1>",
        *(f"<p>{html.escape(note)}</p>" for note in scope_words(report)),
        *(f'<p class="error">{html.escape(_trouble(counter))}</p>' for counter in report.troubles),
        "<h2>Where the time went</h2>",
        _rows([_part_cells(part, report.story) for part in report.story.parts]),
        f"<p>{html.escape(describe_links(report.links))}</p>",
        *_stages(report),
        "<h2>The slowest request, span by span</h2>",
        _waterfall(report.slowest_spans, with_script=not report.stages),
        "<h2>Hosts</h2>",
        _rows([(line.host, f"{line.packets_count:,} packets", line.clock) for line in report.hosts]),
        f"<p>{html.escape(names)}</p>" if (names := names_words(report.info)) else "",
        "<h2>Pairing</h2>",
        _pairing(report.pairing),
        "<h2>Slowest requests</h2>",
        f"<p>{html.escape(f'{report.requests.count:,} requests' + outcome_words(report.requests))}</p>",
        f"<p>{html.escape(abandoned_words(report.requests))}</p>" if report.requests.abandoned_count else "",
        _rows([(line.name, in_words(line.duration_ns), line.service, line.transaction_id or "") for line in requests]),
        *_streams(report.streams),
        *_annotations(report),
        *(part for line in report.load for part in _load(line)),
        *(["<h2>Served by</h2>", _rows(list(map(served_words, report.servers)))] if report.servers else []),
        *(["<h2>TLS</h2>", _rows([line_words(line) for line in report.tls])] if report.tls else []),
        "<h2>Findings</h2>",
        _thresholds_paragraph(report)
        + ("".join(_finding(finding) for finding in report.findings) or "<p>No finding.</p>"),
    ]
    return _PAGE.format(title=html.escape(report.story.subject), body="\n".join(body))


def _annotations(report: Report) -> list[str]:
    """The sections about logs, and about spans of other tracers with where these and packets disagree."""
    sections = {
        "Logs": [line.words for line in report.annotations if line.kind == Kind.LOG],
        "Spans of other tracers": [line.words for line in report.annotations if line.kind == Kind.SPAN],
        "Where these spans and packets disagree": [line.words for line in report.disagreements],
    }
    return [part for title, rows in sections.items() if rows for part in (f"<h2>{title}</h2>", _rows(rows))]


def _load(line: LoadLine) -> list[str]:
    """The section about a run of a load generator."""
    return [f"<h2>Load: {html.escape(line.name)}</h2>", *(f"<p>{html.escape(words)}</p>" for words in line.sentences)]


def _streams(streams: StreamSummary) -> list[str]:
    """The section about streams, by kind."""
    if not streams.count:
        return []
    rows = [group_words(group) for group in streams.groups]
    return ["<h2>Streams</h2>", f"<p>{html.escape(streams_words(streams))}</p>", _rows(rows)]


def _stages(report: Report) -> list[str]:
    """The sections about stages of requests, and about differences between groups of requests."""
    parts: list[str] = []
    if report.stages:
        parts += ["<h2>Where requests spend their time</h2>", _stage_bars(report.stages)]
    parts += ["<h2>What makes slow requests slow</h2>", *_comparison(report.slow)] if report.slow.kinds else []
    if report.against is not None:
        parts += ["<h2>Compared with another trace</h2>", *_comparison(report.against)]
    return parts


def _comparison(found: Comparison) -> list[str]:
    """A table for each kind of request; differences within the noise are marked."""
    parts = [f"<p>{html.escape(found.first)} → {html.escape(found.second)}</p>"]
    header = ("", found.first, found.second, "difference", "")
    for kind in (*found.untested, *found.kinds):
        counts = f"{kind.first.requests_count:,} and {kind.second.requests_count:,} requests"
        means = ("all", in_words(kind.first.mean_ns), in_words(kind.second.mean_ns), "", "")
        few = "too few for a test" if kind in found.untested else ""
        rows = [header, means, *(_difference_cells(stage, few) for stage in kind.stages)]
        parts += [f"<p>{html.escape(kind.kind)}, {counts}</p>", _rows(rows, "figures")]
    return parts


def _difference_cells(stage: StageDifference, few: str = "") -> tuple[str, ...]:
    verdict = few or (f"p = {stage.p_value:.2g}" if stage.is_significant else "noise")
    return stage.stage, in_words(stage.first_ns), in_words(stage.second_ns), stage.in_words, verdict


def _stage_bars(stages: Sequence[StageLine]) -> str:
    """A chart of the stages (ms) with two bars: all requests, and the slowest."""
    go = _plotly()
    layout = dict(
        barmode="stack",
        **BARE,
        height=300,
        margin={"l": 10, "r": 10, "t": 10, "b": 40},
        legend={"orientation": "h", "y": -0.3, "traceorder": "normal"},
        xaxis={"title": "ms"},
        yaxis={"autorange": "reversed", "automargin": True},
    )
    figure = go.Figure(layout=layout)
    rest = [sum(getattr(line, name) for line in stages[MOST_STAGES:]) for name in ("mean_ns", "slowest_mean_ns")]
    for line in (*stages[:MOST_STAGES], StageLine("everything else", *rest)):
        lengths = [line.mean_ns / 1e6, line.slowest_mean_ns / 1e6]
        hover = f"{line.stage}<br>%{{x:.3f}} ms<extra></extra>"
        bars = ["on average", SLOWEST_WORDS]
        figure.add_bar(name=line.stage, orientation="h", y=bars, x=lengths, hovertemplate=hover)
    return f'<div class="plot">{figure.to_html(full_html=False, include_plotlyjs=True)}</div>'


def _plotly() -> Any:
    try:
        import plotly.graph_objects as go  # noqa: PLC0415 - only pages with figures need it
    except ImportError:
        raise MissingDependencyError(
            "a page with figures needs plotly, which is not installed", f"run: {install_command('viewer')}"
        ) from None
    return go


def _trouble(counter: CounterInfo) -> str:
    return f"{counter.host or ''} {counter.name}: {counter.count:,}; {counter.remedy}".strip()


def _part_cells(part: Part, story: Story) -> tuple[str, ...]:
    return part.label, part.words, share(part.duration_ns, story.duration_ns)


def _rows(rows: Sequence[tuple[str, ...]], kind: str = "") -> str:
    cells = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows)
    return f"<table{f' class={kind}' if kind else ''}>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def _pairing(pairing: Pairing) -> str:
    """Sums, notes on clocks and addresses, a table of the pairs of hosts, and the worst connections."""
    shown = [name for name in NAMES if getattr(pairing.total, name)]
    header = ("", "hops", "matched", *(NAMES[name] for name in shown))
    rows = [
        (
            pair_name(pair),
            f"{pair.counts.hops_count:,}",
            pair.counts.matched_share,
            *(f"{getattr(pair.counts, name):,}" for name in shown),
        )
        for pair in pairing.host_pairs
    ]
    worst = [(connection_name(each), trouble_words(each.counts)) for each in pairing.worst_connections]
    words = f"{pairing.words}; {pairing.hops_words}."
    parts = [f"<p>{html.escape(line)}</p>" for line in (words, *pairing.notes)]
    parts.append(_rows([header, *rows], "figures"))
    if worst:
        count = f"{len(worst):,} of {pairing.imperfect_connections_count:,}"
        parts += [f"<p>The worst connections ({count}):</p>", _rows(worst)]
    return "\n".join(parts)


def _thresholds_paragraph(report: Report) -> str:
    """A paragraph about thresholds that the operator set."""
    words = changes_words(report.info.thresholds)
    return f"<p><small>{html.escape(words)}</small></p>" if words else ""


def _finding(finding: FindingLine) -> str:
    cost = f" ({in_words(finding.cost_ns)})" if finding.cost_ns else ""
    text = html.escape(f"{finding.severity}{cost}: {finding.text}")
    return f'<p class="{finding.severity}">{text}<br><small>{html.escape(finding.remedy)}</small></p>'


def _waterfall(bars: Sequence[SpanBar], with_script: bool) -> str:
    """A chart with a row for each span and its consecutive stretches, in milliseconds from the request's start."""
    go = _plotly()
    layout = dict(
        barmode="overlay",
        **BARE,
        height=120 + 24 * len(bars),
        margin={"l": 10, "r": 10, "t": 10, "b": 40},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        xaxis={"title": "ms from the request's start"},
        yaxis={"autorange": "reversed", "automargin": True},
    )
    figure = go.Figure(layout=layout)
    rows = [f"{number}. {'· ' * bar.depth}{bar.label}" for number, bar in enumerate(bars, 1)]
    for place, (stretch, colour) in enumerate(STRETCHES.items()):
        lengths = [(bar.bounds_ns[place + 1] - bar.bounds_ns[place]) / 1e6 for bar in bars]
        figure.add_bar(
            name=stretch,
            orientation="h",
            y=rows,
            x=lengths,
            base=[bar.bounds_ns[place] / 1e6 for bar in bars],
            marker_color=colour,
            hovertemplate="%{y}<br>" + stretch + " %{x:.3f} ms<extra></extra>",
        )
    return f'<div class="plot">{figure.to_html(full_html=False, include_plotlyjs=with_script)}</div>'
