"""The limit of what the packets of `chain` can show, compared with an enumeration of all possibilities."""

from itertools import permutations

import numpy as np
import pytest

from benchmarks.linking.limit import shares_of_ways


def test_ways_are_drawn_evenly() -> None:
    """Six requests of different lengths: the shares are those of all ways counted one by one."""
    draws = np.random.default_rng(5)
    begins = np.sort(draws.integers(0, 60, 6))
    requests = np.stack([begins, begins + draws.integers(50, 120, 6)], axis=1)
    sent = requests[:, 0] + draws.integers(1, 20, 6)
    calls = np.stack([sent, sent + draws.integers(1, 20, 6)], axis=1)
    assert (calls[:, 1] < requests[:, 1]).all()

    ways = [
        way
        for way in permutations(range(6))
        if all(requests[r, 0] < calls[c, 0] and requests[r, 1] > calls[c, 1] for c, r in enumerate(way))
    ]
    assert 1 < len(ways) < 720, "some ways are ruled out, and some are left"
    found = shares_of_ways(requests, calls, sweeps=20_000)
    for call, shares in enumerate(found):
        for request in range(6):
            expected = sum(way[call] == request for way in ways) / len(ways)
            assert shares.get(request, 0.0) == pytest.approx(expected, abs=0.03)


def test_a_call_that_only_one_request_can_have_made_is_certain() -> None:
    requests = np.array([[0, 10], [20, 30]])
    assert shares_of_ways(requests, np.array([[2, 5], [22, 25]]), sweeps=10) == [{0: 1.0}, {1: 1.0}]
