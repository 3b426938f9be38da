"""The graph of lines against networkx, on random graphs."""

from random import Random

import networkx as nx
import pytest

from collector.clocks.line_graph import LineGraph


@pytest.mark.parametrize("seed", range(20))
def test_groups_ways_and_sums_are_those_of_networkx(seed: int) -> None:
    random = Random(seed)
    members = range(random.randint(1, 12))
    every = [(a, b) for a in members for b in members if a < b]
    pairs = random.sample(every, random.randint(0, len(every)))
    weights = {pair[:: random.choice((1, -1))]: random.random() for pair in pairs}
    expected = nx.Graph()
    expected.add_nodes_from(members)
    expected.add_weighted_edges_from((a, b, weight) for (a, b), weight in weights.items())
    graph = LineGraph(members, weights)
    assert graph.groups() == sorted(nx.connected_components(expected), key=min)
    for start in members:
        assert list(graph.ways_from(start)) == list(nx.bfs_edges(expected, start))
        found = graph.least_sums(start, weights)
        assert found == pytest.approx(nx.single_source_dijkstra_path_length(expected, start))
