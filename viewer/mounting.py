"""Where a viewer is mounted: at the root, or below `/period/NAME` in a series.

The page's scripts ask by relative addresses. Links that the server makes begin at the root; below a base they get it
put before them.
"""

import re
from collections.abc import Sequence
from typing import TypeVar

from dash.development.base_component import Component

PERIOD = re.compile(r"/period/(\d{8}T\d{6}Z)(/.*)$")
Tree = TypeVar("Tree", bound=Component | Sequence[Component])


def base_of(name: str) -> str:
    """What is put before the addresses of a period's viewer."""
    return f"/period/{name}"


def with_links_below(base: str, tree: Tree) -> Tree:
    """`tree`, in which all links to this server lead below `base`."""
    if base:
        for component in tree if isinstance(tree, list | tuple) else [tree]:
            if isinstance(component, Component):
                _move_links(base, component)
    return tree


def _move_links(base: str, root: Component) -> None:
    for component in [root, *(each for each in root._traverse() if isinstance(each, Component))]:
        for name in ("href", "action"):
            place = getattr(component, name, None)
            if isinstance(place, str) and place.startswith("/") and not place.startswith(f"{base}/"):
                setattr(component, name, base + place)
