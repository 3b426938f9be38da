"""The page that compares, stage by stage, slow with typical requests of this trace, or this trace with another one."""

from collections.abc import Sequence
from functools import lru_cache

from dash import dcc, html
from dash.development.base_component import Component
from msgspec import Struct

from collector.queries import (
    Comparison,
    KindComparison,
    StageDifference,
    TraceView,
    compare_found,
    compare_servers,
)
from tracer.errors import InputError
from viewer.figures.differences import differences_figure
from viewer.pages.address import Address
from viewer.pages.context import PageData, short_names
from viewer.pages.parts import Row, chart, choices, code, heading, nothing, table
from viewer.toolbar import SEARCH_WORDS
from viewer.wording import duration, plural

PARTS = {"typical": "typical requests", "slow": "slow ones"}
"""Of one trace, in a sentence."""
INSIDE = "slow and typical ones of this trace"
HEAD = ("stage", "difference", "± (95 %)", "p (corrected)", "more than noise")
MOST_KINDS = 8
CALLS = ("Calls answered by ", " against those by ")
SEARCHES, HOSTS = ("requests", "others"), ("host", "other_host")
"""Names of the forms' fields: of what is compared, and with what."""


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
    plain = dict.fromkeys((*SEARCHES, *HOSTS))
    options = [(INSIDE, address.link(**{"with": None}, **plain), chosen not in names)]
    options += [(f"with {name}", address.link(**{"with": name}, **plain), name == chosen) for name in names]
    asked = Asked.of(address)
    options = [(text, href, is_chosen and not asked) for text, href, is_chosen in options]
    parts = [title, choices("Compare", options), _groups_form(address), _hosts_form(data.trace, address)]
    if not traces:
        parts.append(html.P(["To compare with another trace: ", code("tracer view TRACE OTHER…")], className="hint"))
    try:
        other = traces[names.index(chosen)] if chosen in names else None
        found = _asked_comparison(data.trace, asked) if asked else _comparison(data.trace, other)
    except InputError as error:
        return [*parts, nothing("This cannot be compared", str(error))]
    first, second = (data.trace.summary.name, chosen) if chosen in names else ("typical", "slow")
    first, second = (found.first, found.second) if asked else (first, second)
    return [*parts, *_comparison_cards(found, first, second)]


class Asked(Struct, frozen=True):
    """Two groups of requests by searches, or two hosts; the second search may be empty, for all others."""

    searches: tuple[str, str] = ("", "")
    hosts: tuple[str, str] = ("", "")

    @classmethod
    def of(cls, address: Address) -> "Asked":
        """What the address asks for."""
        searches, hosts = ((address.text(one), address.text(other)) for one, other in (SEARCHES, HOSTS))
        return cls(searches=searches, hosts=hosts if all(hosts) else ("", ""))

    def __bool__(self) -> bool:
        return bool(self.searches[0] or self.hosts[0])


def _groups_form(address: Address) -> Component:
    """Two searches; it needs no script."""
    hints = ("status:error or >50ms", "all others")
    fields = [
        dcc.Input(
            type="search", name=name, value=address.text(name), placeholder=hint, list=SEARCH_WORDS, autoComplete="off"
        )
        for name, hint in zip(SEARCHES, hints, strict=True)
    ]
    labels = [html.Label([text, field]) for text, field in zip(("Requests ", " against "), fields, strict=True)]
    parts = [*labels, html.Datalist(id=SEARCH_WORDS), html.Button("compare", type="submit")]
    return html.Form(parts, id="compare-groups", action=address.path, method="GET", className="search")


def _hosts_form(trace: TraceView, address: Address) -> Component:
    """Two of the hosts that answer calls."""
    served = [lane.host for lane in trace.lanes if lane.services]
    if len(served) < 2:
        return html.Div()
    chosen = [address.text(name) or served[at] for at, name in enumerate(HOSTS)]
    selects = [
        html.Select([html.Option(host, value=host, selected=host == now) for host in served], name=name)
        for name, now in zip(HOSTS, chosen, strict=True)
    ]
    labels = [html.Label([text, select]) for text, select in zip(CALLS, selects, strict=True)]
    parts = [*labels, html.Button("compare", type="submit")]
    return html.Form(parts, id="compare-hosts", action=address.path, method="GET", className="search")


@lru_cache(maxsize=2)
def _asked_comparison(trace: TraceView, asked: Asked) -> Comparison:
    """Raises: as `compare_found`."""
    return compare_servers(trace, *asked.hosts) if asked.hosts[0] else compare_found(trace, *asked.searches)


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
