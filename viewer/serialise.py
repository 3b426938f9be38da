"""Serialises the parts of the page that never change: HTML components become trees, of which the page makes elements.

Dash notifies every component of every change on the page. The list of 200 requests alone is 1,400 components, with
which a click took half a second; elements that Dash does not know cost nothing.
"""

from collections.abc import Sequence

from dash.development.base_component import Component

Tree = str | list[object]
"""A text, or an element: its tag, its attributes, the trees in it."""
_NAMES = {"className": "class", "colSpan": "colspan", "rowSpan": "rowspan"}


def element_trees(children: Sequence[str | Component]) -> list[Tree]:
    """HTML components and texts as trees. Styles must be dicts, all other attributes texts or numbers."""
    return [child if isinstance(child, str) else _element(child) for child in children]


def _element(component: Component) -> list[object]:
    described = component.to_plotly_json()
    assert described["namespace"] == "dash_html_components", "only HTML needs no script"
    props = {name: value for name, value in described["props"].items() if value is not None}
    children = props.pop("children", [])
    within = children if isinstance(children, list | tuple) else [children]
    texts_and_elements = [f"{child}" if isinstance(child, int | float) else child for child in within]
    attributes = {_NAMES.get(name, name.lower()): value for name, value in props.items()}
    return [described["type"].lower(), attributes, element_trees(texts_and_elements)]
