"""Figures of adjacent groups against plain loops."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collector.runs import largest_so_far, reached_before, run_starts

rows = st.lists(st.tuples(st.integers(0, 5), st.integers(-9, 9)), max_size=60).map(
    lambda pairs: sorted(pairs, key=lambda pair: pair[0])
)


@given(rows)
def test_against_plain_loops(pairs: list[tuple[int, int]]) -> None:
    groups = np.array([group for group, _ in pairs], dtype=np.int64)
    values = np.array([value for _, value in pairs], dtype=np.int64)
    of_group = [[place for place in range(at + 1) if groups[place] == groups[at]] for at in range(len(pairs))]
    assert run_starts(groups).tolist() == [at for at, mine in enumerate(of_group) if len(mine) == 1]
    largest = [max(mine, key=lambda place: (values[place], place)) for mine in of_group]
    assert largest_so_far(values, groups).tolist() == largest
    before = [max((int(values[place]) for place in mine[:-1]), default=-99) for mine in of_group]
    assert reached_before(values, groups, -99).tolist() == before
