"""The page that compares, stage by stage, slow with typical requests of this trace, or this trace with another one."""

from collections.abc import Sequence
from functools import lru_cache

from dash import html
from dash.development.base_component import Component

from collector.queries import Comparison, KindComparison, StageDifference, TraceView
from tracer.errors import InputError
from viewer.figures.differences import differences_figure
from viewer.pages.address import Address
from viewer.pages.context import PageData, short_names
from viewer.pages.parts import Row, chart, choices, code, heading, nothing, table
from viewer.wording import duration, plural

PARTS = {"typical": "typical requests", "slow": "slow ones"}
"""Of one trace, in a sentence."""
INSIDE = "slow and typical ones of this trace"
HEAD = ("stage", "difference", "± (95 %)", "p (corrected)", "more than noise")
MOST_KINDS = 8


def content(data: PageData, address: Address) -> list[Component]:
    """The page."""
    title = heading(
        "Compare",
        "Means of each stage over requests of one kind; a filled dot is more than noise. The stages add up to the "
        "difference of the whole.",
    )
    traces = data.companions.traces
    names = short_names(traces)
    chosen = address.text("with")
    options = [(INSIDE, address.link(**{"with": None}), chosen not in names)]
    options += [(f"with {name}", address.link(**{"with": name}), name == chosen) for name in names]
    parts = [title, choices("Compare", options)]
    if not traces:
        parts.append(html.P(["To compare with another trace: ", code("tracer view TRACE OTHER…")], className="hint"))
    try:
        found = _comparison(data.trace, traces[names.index(chosen)] if chosen in names else None)
    except InputError as error:
        return [*parts, nothing("That trace cannot be compared with", str(error))]
    first, second = (data.trace.summary.name, chosen) if chosen in names else ("typical", "slow")
    return [*parts, *_comparison_cards(found, first, second)]


@lru_cache(maxsize=2)
def _comparison(trace: TraceView, other: str | None) -> Comparison:
    """Kept, for it takes 15 s of CPU time for a million requests."""
    return trace.slow_against_typical() if other is None else trace.against(other)


def _comparison_cards(found: Comparison, first: str, second: str) -> list[Component]:
    if not found.kinds:
        few = f"There are too few of: {', '.join(found.left_out)}. " if found.left_out else ""
        return [nothing("No kind of request is there often enough to compare", f"{few}It takes five on both sides.")]
    parts = [_summary(found.significant, first, second)]
    cards = [_kind(kind, first, second, at) for at, kind in enumerate(found.kinds[:MOST_KINDS])]
    if found.left_out:
        parts.append(html.P(f"Too few to compare: {', '.join(found.left_out)}.", className="hint"))
    return [*parts, *cards]


def _summary(significant: Sequence[StageDifference], first: str, second: str) -> Component:
    if not significant:
        return html.P(f"Nothing differs between {first} and {second} by more than noise.", id="differs")
    largest = significant[0]
    first, second = (PARTS.get(name, name) for name in (first, second))
    way = "longer" if largest.difference_ns > 0 else "shorter"
    by = duration(abs(largest.difference_ns))
    words = f"{largest.kind}: {largest.stage} takes {by} {way} in {second} than in {first}"
    rest = f"; {plural(len(significant) - 1, 'other stage')} differ by more than noise" if len(significant) > 1 else ""
    return html.P(html.B(f"{words}{rest}."), id="differs")


def _kind(kind: KindComparison, first: str, second: str, at: int) -> Component:
    sides = [
        (name, f"{group.requests_count:,}", duration(group.mean_ns), duration(group.median_ns))
        for name, group in ((first, kind.first), (second, kind.second))
    ]
    head = ("stage", first, second, *HEAD[1:])
    stages = table(head, [_row(stage) for stage in kind.stages])
    card = chart(f"kind-{at}", kind.kind, differences_figure(kind, first, second), stages)
    return html.Section([card, table(("", "requests", "mean", "median"), sides)], className="kind")


def _row(stage: StageDifference) -> Row:
    return (
        stage.stage,
        duration(stage.first_ns),
        duration(stage.second_ns),
        f"{'+' * (stage.difference_ns > 0)}{duration(stage.difference_ns)}",
        duration(stage.uncertainty_ns),
        f"{stage.p_value:.2g}",
        "● yes" if stage.is_significant else "○ no",
    )
