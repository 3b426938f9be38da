"""The calls of a request beside those of another one: which of them do the same.

Two calls are matched if those that made them are, and both are of one kind (service, method, operation). If a parent
made several of a kind, those answered by the same host are matched first, the others in the order in which they began.
What one request has and the other has not stays alone, with all below it.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from collector.queries.span_trees import Span


class CallPair(Struct, frozen=True):
    """A call of a request and the same call of another one; one of them is None where only the other has it."""

    mine: Span | None
    other: Span | None

    @property
    def either(self) -> Span:
        """The call of this request, or the other one's where it has none."""
        found = self.mine or self.other
        assert found is not None
        return found


class _Node(Struct):
    span: Span
    children: list["_Node"] = field(default_factory=list)


def match_calls(mine: Sequence[Span], other: Sequence[Span]) -> list[CallPair]:
    """The spans of two requests in pairs, roots first, then depth first by when they began after their root.

    Arguments: the spans of each as `TraceView.spans` gives them, depth first with the root at the front.
    """
    origins_ns = (mine[0].start_ns, other[0].start_ns)
    return list(_pairs(_tree(mine), _tree(other), origins_ns))


def _tree(spans: Sequence[Span]) -> _Node:
    path: list[_Node] = []
    for span in spans:
        node = _Node(span)
        del path[span.depth :]
        if path:
            path[-1].children.append(node)
        path.append(node)
    return path[0]


def _pairs(mine: _Node | None, other: _Node | None, origins_ns: tuple[int, int]) -> Iterator[CallPair]:
    yield CallPair(mine.span if mine else None, other.span if other else None)
    children = _match_children(mine.children if mine else [], other.children if other else [])
    for one, another in sorted(children, key=lambda pair: _began(pair, origins_ns)):
        yield from _pairs(one, another, origins_ns)


def _match_children(mine: Sequence[_Node], other: Sequence[_Node]) -> list[tuple[_Node | None, _Node | None]]:
    found: list[tuple[_Node | None, _Node | None]] = []
    left: dict[tuple[str, str, str], list[_Node]] = defaultdict(list)
    for node in other:
        left[_kind(node.span)].append(node)
    alone = []
    for node in mine:
        alike = left[_kind(node.span)]
        there = next((each for each in alike if each.span.server_host == node.span.server_host), None)
        if there is None:
            alone.append(node)
        else:
            alike.remove(there)
            found.append((node, there))
    for node in alone:
        alike = left[_kind(node.span)]
        found.append((node, alike.pop(0) if alike else None))
    return [*found, *((None, node) for alike in left.values() for node in alike)]


def _kind(span: Span) -> tuple[str, str, str]:
    return span.service or span.server_host or "", span.method, span.operation


def _began(pair: tuple[_Node | None, _Node | None], origins_ns: tuple[int, int]) -> int:
    """When it began after its root, ns: in this request where it has it."""
    node, origin_ns = (pair[0], origins_ns[0]) if pair[0] else (pair[1], origins_ns[1])
    assert node is not None
    return node.span.start_ns - origin_ns
