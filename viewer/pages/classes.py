"""The choice of a class of requests, which several pages begin with."""

from dash import html
from dash.development.base_component import Component

from collector.queries import RequestClass, TraceView
from viewer.pages.address import Address
from viewer.pages.parts import choices
from viewer.wording import OUTCOME_WORDS, outcome_words

MOST_SHOWN = 8
"""Most classes with a link of their own; the others are folded away."""
ALL = "all"
"""What the address calls all classes together."""


def chosen_class(trace: TraceView, address: Address, usual: str | None = None) -> str:
    """The class that the address names, "" for all; where it names none of the trace: `usual`, if it is given, else the
    clients' own class with most time in all."""
    names = [each.name for each in trace.load.classes]
    named = address.text("class")
    if named in (*names, ALL):
        return "" if named == ALL else named
    return usual if usual is not None else names[0] if names else ""


def class_choices(trace: TraceView, address: Address, chosen: str, all_of_them: bool) -> Component:
    """A link for each class; the clients' own and those with most time in all first."""
    classes = trace.load.classes
    first = [each for at, each in enumerate(classes) if at < MOST_SHOWN or each.name == chosen]
    rest = [each for each in classes if each not in first]
    everything = [(ALL, address.link(**{"class": ALL, "page": None}), not chosen)] if all_of_them else []
    row = choices("Requests", [*everything, *(_option(each, address, chosen) for each in first)])
    if not rest:
        return row
    more = choices("", [_option(each, address, chosen) for each in rest])
    return html.Div([row, html.Details([html.Summary(f"{len(rest)} more classes"), more])])


def chosen_outcome(address: Address) -> str:
    """The outcome that the address names; "" for all."""
    return address.one_of("outcome", ("", *OUTCOME_WORDS))


def outcome_choices(address: Address, chosen: str) -> Component:
    """A link for each outcome that a request may have."""
    options = [("all", ""), *((words, name) for name, words in OUTCOME_WORDS.items())]
    return choices(
        "Outcome", [(text, address.link(outcome=name or None, page=None), name == chosen) for text, name in options]
    )


def _option(each: RequestClass, address: Address, chosen: str) -> tuple[str, str, bool]:
    outcomes = outcome_words(each.failed_count, each.abandoned_count, each.unknown_count)
    text = f"{each.name} ({each.requests_count:,}{outcomes})"
    return text, address.link(**{"class": each.name, "page": None}), each.name == chosen
