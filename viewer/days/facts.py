"""What is known of one period, in words: what there is of it, its classes, where the time went, its findings."""

from dash import html
from dash.development.base_component import Component

from collector.queries import PeriodFacts, PeriodState
from viewer.days.times import moment, stretch_words
from viewer.ledger import STAGES
from viewer.mounting import base_of
from viewer.pages.parts import table
from viewer.wording import duration, plural

NO_HOST = "the servers"
PART_COLOURS = 10
LEAST_SHARE = 0.005
"""Of the ledger: smaller parts are one."""


def facts_parts(name: str, facts: PeriodFacts) -> list[Component]:
    """The parts of the panel beside the picture."""
    stretch = facts.stretch
    head = html.H2(stretch_words(stretch.from_ns, stretch.to_ns))
    parts: list[Component] = [head, *_state_parts(name, facts)]
    if stretch.state is PeriodState.FAILED:
        return parts
    return [*parts, *_classes(facts), *_ledger(facts), *_findings(facts)]


def _state_parts(name: str, facts: PeriodFacts) -> list[Component]:
    stretch = facts.stretch
    if stretch.state is PeriodState.TRACE:
        link = html.A("open its timeline", href=f"{base_of(name)}/", className="open-period")
        return [html.P(["Its trace is kept: ", link, "."])]
    if stretch.state is PeriodState.FAILED:
        return [html.P([html.B("No trace could be made of it: ", className="bad"), stretch.problem, "."])]
    when = f" ({moment(facts.removed_ns)})" if facts.removed_ns else ""
    words = f"Its trace was removed{when}, so single packets and requests are gone. Its summary knows this:"
    return [html.P(words)]


def _classes(facts: PeriodFacts) -> list[Component]:
    if not facts.classes:
        return [html.P("No client's request began in it.", className="hint")]
    rows = [
        (words, f"{count:,}", f"{failed:,}" if failed else "", _time(p50), _time(p99))
        for words, count, failed, p50, p99 in facts.classes
    ]
    more = facts.left_out_count
    rest = [html.P(f"and {more:,} more class{'es' if more > 1 else ''}", className="hint")] if more else []
    return [html.H3("Clients' requests"), table(("", "requests", "failed", "p50", "p99"), rows), *rest]


def _ledger(facts: PeriodFacts) -> list[Component]:
    whole = sum(spent for _, spent in facts.ledger_ns)
    if not whole:
        return []
    colours = {stage: at % PART_COLOURS for at, stage in enumerate(STAGES)}
    ordered = sorted(facts.ledger_ns, key=lambda part: -part[1])
    parts = [(_stage_words(stage), spent, colours[stage]) for stage, spent in ordered if spent / whole >= LEAST_SHARE]
    bar = html.Div(
        [
            html.Div(
                title=f"{words}: {spent / whole:.0%}", style=_part_style(colour) | {"flexGrow": f"{spent / whole}"}
            )
            for words, spent, colour in parts
        ],
        className="days-ledger",
    )
    lines = [
        html.Li([html.Span(className="days-key", style=_part_style(colour)), f"{spent / whole:.1%} {words}"])
        for words, spent, colour in parts
    ]
    title = html.H3(
        ["Where the time went", html.Small(f" {duration(whole)} of {plural(facts.requests_count, 'request')}")]
    )
    return [title, bar, html.Ul(lines, className="days-parts")]


def _findings(facts: PeriodFacts) -> list[Component]:
    if not facts.findings:
        return [html.H3("Findings"), html.P("none", className="hint")]
    lines = [
        html.Li([html.B(f"{severity}{' on ' + host if host else ''}: "), text])
        for severity, host, text in facts.findings
    ]
    return [html.H3("Findings"), html.Ul(lines, className="days-findings")]


def _stage_words(stage: str) -> str:
    """The words of a stage, of which no single server is meant."""
    return f"{STAGES[stage]} {NO_HOST}"


def _part_style(colour: int) -> dict[str, str]:
    return {"background": f"var(--part-{colour})"}


def _time(value_ns: float | None) -> str:
    return "" if value_ns is None else duration(round(value_ns))
