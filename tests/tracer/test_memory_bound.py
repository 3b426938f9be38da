"""How an agent's memory is divided."""

import pytest

from tracer.errors import InputError
from tracer.memory_bound import LEAST_MIB, MIB, divide_memory


@pytest.mark.parametrize(
    ("bound_mib", "interfaces", "ring_mib", "expected_ring_mib"),
    [(256, 1, None, 32), (256, 6, None, 16), (256, 2, 48, 48), (LEAST_MIB, 1, None, 32), (LEAST_MIB, 3, None, 12)],
)
def test_rings_take_at_most_their_share(
    bound_mib: int, interfaces: int, ring_mib: int | None, expected_ring_mib: int
) -> None:
    shares = divide_memory(bound_mib * MIB, interfaces, ring_mib and ring_mib * MIB)
    assert shares.ring_bytes == expected_ring_mib * MIB
    assert shares.ring_bytes * interfaces <= bound_mib * MIB * 3 // 8


def test_rings_that_do_not_fit_are_refused_with_what_does() -> None:
    with pytest.raises(InputError, match=r"2 rings of 100 MiB take more than 3/8 of 256 MiB"):
        divide_memory(256 * MIB, 2, 100 * MIB)


def test_a_smaller_bound_makes_smaller_segments_and_shorter_lists() -> None:
    large, small = divide_memory(1024 * MIB, 1), divide_memory(LEAST_MIB * MIB, 1)
    assert (large.segment_bytes, small.segment_bytes) == (16 * MIB, 6 * MIB)
    assert (large.overflow_bytes, small.overflow_bytes) == (192 * MIB, 18 * MIB)
    assert (large.listed_count, small.listed_count) == (314_572, 29_491)
