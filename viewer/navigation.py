"""The pages of the viewer, and the row of links at the top of each."""

from typing import Any

from dash import dcc, html
from dash.development.base_component import Component
from msgspec import Struct

PREFIX = "/pages/"


class PageLink(Struct, frozen=True):
    """A page by its place and what it answers."""

    name: str
    path: str
    question: str


TIMELINE = PageLink("Timeline", "/", "Every packet on the hosts' lanes")
PAGES = (
    TIMELINE,
    PageLink("Requests", f"{PREFIX}requests", "Every request, to filter and sort"),
    PageLink("Overlay", f"{PREFIX}overlay", "Many requests laid over each other"),
    PageLink("Services", f"{PREFIX}services", "Who calls whom"),
    PageLink("Streams", f"{PREFIX}streams", "What is no request: subscriptions, sessions, events"),
    PageLink("Latency", f"{PREFIX}latency", "How long requests, exchanges and packets took"),
    PageLink("Quality", f"{PREFIX}quality", "How far this trace can be trusted"),
    PageLink("Bench", f"{PREFIX}bench", "Runs of the load generator"),
    PageLink("Compare", f"{PREFIX}compare", "What makes requests slow, and what differs from another trace"),
    PageLink("What if", f"{PREFIX}what-if", "How long requests would have taken if something were otherwise"),
    PageLink("Query", f"{PREFIX}query", "Anything, in SQL"),
)


AROUND = (
    PageLink("Days", "/days", "The series that this period is part of"),
    PageLink("‹ period before", "/previous", "The timeline of the period before; if its trace is gone, its summary"),
    PageLink("period after ›", "/next", "The timeline of the period after; if its trace is gone, its summary"),
)


def navigation(current: str, *, in_series: bool = False) -> Component:
    """Links to all pages; the one whose path is `current` is marked. `in_series`: also to the periods around."""
    label: dict[str, Any] = {"aria-label": "Pages"}
    around = [html.A(page.name, href=page.path, title=page.question) for page in AROUND if in_series]
    return html.Nav([*around[:1], *(_link(page, current) for page in PAGES), *around[1:]], id="pages-nav", **label)


def period_edges() -> list[Component]:
    """Where the timeline of a period ends: the same ways to the periods around."""
    names = {"/previous": "previous-period", "/next": "next-period"}
    return [
        html.A(page.name, href=page.path, title=page.question, id=names[page.path], className="period-edge")
        for page in AROUND
        if page.path in names
    ]


def _link(page: PageLink, current: str) -> Component:
    """Between the timeline and the other pages the browser loads anew, among these it does not."""
    here: dict[str, Any] = {"aria-current": "page"} if page.path == current else {}
    stays = page is not TIMELINE and current != TIMELINE.path
    if stays:
        return dcc.Link(page.name, href=page.path, title=page.question, className="here" if here else None)
    return html.A(page.name, href=page.path, title=page.question, **here)
