"""Why the selected request took longer than others of its class: HTML only, beside the timeline."""

from dash import html
from dash.development.base_component import Component

from collector.queries.why import MOST_PLACES, StageOfRequest, Why
from collector.queries.why_causes import Cause
from viewer.controls import beside_button, place_button
from viewer.wording import duration


def why_details(why: Why) -> list[Component]:
    """The stages that took longer than usual, with their causes, and those that took less."""
    rank = "" if why.shorter_share is None else f"; longer than {_share(why.shorter_share)} of them"
    others = f"{duration(why.usual_ns)}, the mean of the middle half of {why.alike_count:,} {why.against}{rank}"
    entries = [_stage(each) for each in why.large]
    if why.small:
        extra = html.B(_difference(sum(each.extra_ns for each in why.small)))
        entries.append(html.Li([extra, f" {why.small_words}"]))
    parts = [html.P([html.B(_difference(why.extra_ns)), f" against {others}"], className="facts"), html.Ul(entries)]
    return [*parts, _typical(why.typical)] if why.typical is not None else parts


def _typical(number: int) -> Component:
    """The way to one that is usual; it is also beside the selected request's exchanges."""
    name = f"#{number}"
    button = beside_button(name, number - 1)
    return html.P(["Nearest to the usual: ", button, ", below each exchange in the waterfall."], className="facts")


def no_comparison(reason: str) -> list[Component]:
    """Why there is nothing to compare with."""
    return [html.P(reason, className="facts")]


def _stage(stage: StageOfRequest) -> Component:
    usual = f"{duration(stage.usual_ns)} usually" if stage.usual_ns else "usually none"
    rank = "" if stage.shorter_share is None else f"longer than in {_share(stage.shorter_share)} of them"
    parts: list[Component | str] = [
        html.B(_difference(stage.extra_ns)),
        f" {stage.stage}",
        html.Small(f"{duration(stage.duration_ns)}, {usual}", title=rank if stage.extra_ns > 0 else None),
    ]
    if stage.extra_ns > 0:
        parts += [
            html.Small(f"{duration(place.duration_ns)} on {place.host}: {place.title}")
            for place in stage.where[:MOST_PLACES]
        ]
        parts += map(_cause, stage.causes)
    return html.Li(parts, className="more" if stage.extra_ns > 0 else "less")


def _cause(cause: Cause) -> Component:
    return place_button(cause.text, cause.from_ns, cause.to_ns, cause.hop)


def _difference(extra_ns: int) -> str:
    return f"{'+' if extra_ns >= 0 else '−'}{duration(abs(extra_ns))}"


def _share(share: float) -> str:
    return "all" if share == 1 else f"{100 * share:.1f} %"
