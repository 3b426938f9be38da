"""Plain trees: what is sent to the page instead of components."""

import pytest
from dash import dcc, html

from viewer.serialise import element_trees


def test_components_become_tags_attributes_and_texts() -> None:
    row = html.Li([html.B("a", className="what", title=None), html.I(style={"width": "5%"}), " <b>", 7])
    assert element_trees([row, "text"]) == [
        ["li", {}, [["b", {"class": "what"}, ["a"]], ["i", {"style": {"width": "5%"}}, []], " <b>", "7"]],
        "text",
    ]


def test_data_and_aria_attributes_keep_their_names() -> None:
    assert element_trees([html.Button("x", **{"data-request": "3", "aria-label": "y"})]) == [  # type: ignore[arg-type]
        ["button", {"data-request": "3", "aria-label": "y"}, ["x"]]
    ]


def test_what_needs_a_script_is_no_plain_part() -> None:
    with pytest.raises(AssertionError, match="HTML"):
        element_trees([dcc.Graph()])
