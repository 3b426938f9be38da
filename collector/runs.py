"""Figures of groups whose rows are adjacent, without a loop over groups.

What a row of a group has before it is found in steps that double: first the row before, then two before, and so on, as
in Hillis and Steele, "Data Parallel Algorithms" (CACM 1986). Cost: passes over the rows, as many as the logarithm of
the longest group.
"""

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]


def run_starts(groups: Longs) -> Longs:
    """The first row of each group. Arguments: the group of each row; equal ones are adjacent."""
    if not len(groups):
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])


def largest_so_far(values: Longs, groups: Longs) -> Longs:
    """For each row the place of the largest value up to it in its group; of equal ones the last.

    Arguments: as `run_starts`, and the value of each row.
    """
    place = np.arange(len(values))
    step = 1
    while step < len(values) and (same := groups[step:] == groups[:-step]).any():
        before, here = place[:-step], place[step:]
        place = np.r_[place[:step], np.where(same & (values[before] > values[here]), before, here)]
        step *= 2
    return place


def reached_before(ends: Longs, groups: Longs, nothing: int) -> Longs:
    """For each row the largest of `ends` before it in its group; `nothing` in a group's first row."""
    largest = ends[largest_so_far(ends, groups)]
    reached = np.r_[nothing, largest[:-1]][: len(ends)]
    reached[run_starts(groups)] = nothing
    return reached
