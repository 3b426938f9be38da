"""The timeline's buttons; their data attributes define the actions of `assets/app/timeline.js`."""

from collections.abc import Sequence
from typing import Any

from dash import html
from dash.development.base_component import Component

Children = str | Sequence[str | Component]


def action_button(text: str, action: str, title: str = "", class_name: str = "") -> Component:
    """A button that does one of the actions that keys do as well."""
    return _button(text, {"data-action": action}, title, class_name)


def class_button(children: Children, arrow_class: int, title: str) -> Component:
    """A legend entry that hides or shows a class of arrows."""
    return _button(children, {"data-class": str(arrow_class), "aria-pressed": "true"}, title, "legend")


def toggle_button(children: Children, action: str, title: str) -> Component:
    """A legend entry that does an action, which turns something on or off; its id is the action."""
    data: dict[str, Any] = {"data-action": action, "aria-pressed": "true"}
    return html.Button(children, id=action, title=title, className="legend", **data)


def request_button(children: Children, number: int) -> Component:
    """A row of the list of requests, which selects and fits one."""
    return _button(children, {"data-request": str(number)}, "", "")


def beside_button(children: Children, number: int) -> Component:
    """A request that is compared with the selected one: it is selected, and shown on the same scale."""
    return _button(children, {"data-beside": str(number)}, "Show it in the timeline on the same scale", "link")


def connection_button(children: Children, connection_id: int) -> Component:
    """A connection, which shows the first hop of it that is in trouble."""
    title = "Zoom to the first packet of it that was lost, sent again or not paired"
    return _button(children, {"data-connection": str(connection_id)}, title, "link")


def find_button(text: str, query: str) -> Component:
    """A text that searches for what it is part of."""
    return _button(text, {"data-find": query}, f"Find {query}", "link")


def place_button(text: str, from_ns: int, to_ns: int, hop: int | None) -> Component:
    """A text that zooms to a time, and selects a packet there."""
    data = {"data-from": str(from_ns), "data-to": str(to_ns)} | ({} if hop is None else {"data-hop": str(hop)})
    return _button(text, data, "Zoom to it", "link")


def _button(children: Children, data: dict[str, Any], title: str, class_name: str) -> Component:
    return html.Button(children, title=title or None, className=class_name or None, **data)
