"""Tests of two groups, against SciPy's."""

import numpy as np
import pytest
import scipy

from collector.reporting.significance import half_width_95, p_values_of_many, rank_test

SIZES = [(5, 5), (5, 20), (8, 9), (9, 9), (20, 20), (8, 8), (20, 5)]


def groups(n: int, m: int, decimals: int) -> tuple[np.ndarray, np.ndarray]:
    """Two groups of four columns each: alike, shifted, of another width, far apart."""
    random = np.random.default_rng(n * 100 + m)
    first, second = random.normal(size=(n, 4)), random.normal(size=(m, 4)) * [1, 1, 5, 1] + [0, 1, 0, 9]
    return first.round(decimals), second.round(decimals)


@pytest.mark.parametrize("decimals", [9, 1, 0], ids=["no ties", "few ties", "many ties"])
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_p_values_of_the_rank_test(n: int, m: int, decimals: int) -> None:
    given = groups(n, m, decimals)
    assert rank_test(*given) == pytest.approx(scipy.stats.mannwhitneyu(*given, axis=0).pvalue, rel=1e-12)


@pytest.mark.parametrize(("n", "m"), SIZES)
def test_the_half_width_of_the_interval(n: int, m: int) -> None:
    given = groups(n, m, 9)
    interval = scipy.stats.ttest_ind(*given, axis=0, equal_var=False).confidence_interval(0.95)
    assert half_width_95(*given) == pytest.approx((interval.high - interval.low) / 2, rel=1e-12)


def test_groups_that_do_not_vary_differ_with_certainty_or_not_at_all() -> None:
    same, apart = np.full((6, 1), 3.0), np.full((6, 1), 4.0)
    assert half_width_95(same, apart) == 0.0
    assert rank_test(same, same) == 1.0
    assert rank_test(same, apart) == pytest.approx(scipy.stats.mannwhitneyu(same, apart, axis=0).pvalue)


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_p_values_of_many_tests(count: int) -> None:
    p_values = np.random.default_rng(count).random(count) ** 3
    expected = scipy.stats.false_discovery_control(p_values, method="by")
    assert p_values_of_many(p_values) == pytest.approx(expected, rel=1e-12)
