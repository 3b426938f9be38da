"""Which lines of clocks share traffic, as a graph: its groups, the ways from one of them, sums along the surest ways.

Own code, for a graph of hosts is small, and a library of graphs takes longer to import than a small trace to analyse.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

Pair = tuple[int, int]


class LineGraph:
    """An undirected graph; neighbours are in the order in which their links were given."""

    def __init__(self, members: Iterable[int], pairs: Iterable[Pair]) -> None:
        self.neighbours: dict[int, dict[int, None]] = {member: {} for member in members}
        for a, b in pairs:
            self.neighbours.setdefault(a, {})[b] = None
            self.neighbours.setdefault(b, {})[a] = None

    def groups(self) -> list[set[int]]:
        """Members that links join, directly or through others, by their least."""
        found: list[set[int]] = []
        seen: set[int] = set()
        for member in sorted(self.neighbours):
            if member not in seen:
                found.append({member, *(to for _, to in self.ways_from(member))})
                seen |= found[-1]
        return found

    def ways_from(self, start: int) -> Iterator[Pair]:
        """Links, as from and to, by which each other member of the group is first reached, near ones first."""
        seen, waiting = {start}, deque([start])
        while waiting:
            member = waiting.popleft()
            for other in self.neighbours[member]:
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
                    yield member, other

    def least_sums(self, start: int, weights: Mapping[Pair, float]) -> dict[int, float]:
        """For each member of the group, the least sum of weights along a way from the start (Dijkstra, 1959)."""
        sums: dict[int, float] = {}
        waiting = [(0.0, start)]
        while waiting:
            total, member = heapq.heappop(waiting)
            if member in sums:
                continue
            sums[member] = total
            for other in self.neighbours[member]:
                weight = weights[(member, other)] if (member, other) in weights else weights[(other, member)]
                heapq.heappush(waiting, (total + weight, other))
        return sums
