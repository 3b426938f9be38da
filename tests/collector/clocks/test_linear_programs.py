"""Linear programs, against SciPy's."""

import numpy as np
import pytest
import scipy

from collector.clocks.linear_programs import LinearProgram


def program(costs: list[float], limits: list[float], seed: int = 0) -> LinearProgram:
    """A full matrix of random entries; x is between -5 and 5."""
    rows, columns = np.indices((len(limits), len(costs))).reshape(2, -1)
    order = np.random.default_rng(seed).permutation(len(rows))
    values = np.random.default_rng(seed).normal(size=len(rows))
    bounds = np.full(len(costs), 5.0)
    return LinearProgram(np.array(costs), -bounds, bounds, rows[order], columns[order], values, np.array(limits))


@pytest.mark.parametrize("seed", range(20))
def test_the_solution_is_that_of_scipy(seed: int) -> None:
    given = program([1.0, -2.0, 0.5], [1.0, 2.0, 3.0, 4.0], seed)
    matrix = scipy.sparse.coo_array((given.values, (given.rows, given.columns))).toarray()
    expected = scipy.optimize.linprog(given.costs, matrix, given.limits, bounds=(-5, 5))
    found = given.solve(1000)
    assert found is not None
    assert found == pytest.approx(expected.x)


def test_without_a_solution_there_is_none() -> None:
    assert program([1.0], [-1e9]).solve(1000) is None
    assert program([1.0, -2.0, 0.5], [1.0, 2.0, 3.0, 4.0]).solve(0) is None


def test_the_solver_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    program([1.0], [1.0]).solve(1000)
    assert capfd.readouterr() == ("", "")
