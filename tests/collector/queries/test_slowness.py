"""When requests were slow, held against a loop over all bins of all requests."""

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from collector.queries.slowness import FEWEST, slowness

REQUESTS = st.lists(
    st.tuples(st.integers(0, 990), st.integers(1, 300), st.sampled_from("ab"), st.booleans(), st.booleans()),
    max_size=40,
)


@given(REQUESTS, st.integers(1, 70))
def test_each_bin_has_the_largest_ratio_of_the_requests_under_way(rows: list, bins: int) -> None:
    frame = pl.DataFrame(
        {
            "end_ns": [begin + took for begin, took, *_ in rows],
            "duration_ns": [took for _, took, *_ in rows],
            "class": [name for _, _, name, *_ in rows],
            "outermost": [outer for *_, outer, _ in rows],
            "outcome": ["abandoned" if left else "ok" for *_, left in rows],
        },
        schema={
            "end_ns": pl.Int64,
            "duration_ns": pl.Int64,
            "class": pl.String,
            "outermost": pl.Boolean,
            "outcome": pl.String,
        },
    )
    found = slowness(frame, 1_000, bins)
    expected = np.zeros(bins, np.float32)
    counted = [(begin, took, name) for begin, took, name, outer, left in rows if outer and not left]
    for begin, took, name in counted:
        alike = [other for _, other, of in counted if of == name]
        if len(alike) >= FEWEST:
            for at in range(min(begin // found.bin_ns, bins - 1), min((begin + took) // found.bin_ns, bins - 1) + 1):
                expected[at] = max(expected[at], np.float32(took / np.median(alike)))
    assert found.ratio.tolist() == expected.tolist()
