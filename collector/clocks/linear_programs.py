"""Linear programs, solved by HiGHS's dual simplex. (SciPy has it too, and takes 0.3 s of CPU time to import.)"""

import highspy
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

MOST_INFEASIBLE = 3e-4
"""By how much a solution may break a limit: more is a numeric failure, as in SciPy's `linprog`."""


class LinearProgram(Struct, frozen=True):
    """The least `costs · x` with `lower <= x <= upper` and `matrix · x <= limits`.

    The matrix is given as its entries (row, column, value), in any order, none twice.
    """

    costs: Floats
    lower: Floats
    upper: Floats
    rows: Places
    columns: Places
    values: Floats
    limits: Floats

    def solve(self, most_turns: int) -> Floats | None:
        """x; None if the solver finds none within that many turns. Cost: ~1 ms for two hosts."""
        # `Highs` prints its version before it can be asked not to.
        solver = highspy._Highs()  # type: ignore[attr-defined]
        options = highspy.HighsOptions()
        options.output_flag = False
        options.presolve = "on"
        options.simplex_iteration_limit = most_turns
        solver.passOptions(options)
        solver.passModel(self._model())
        solver.run()
        is_solved = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        if not is_solved or solver.getInfo().max_primal_infeasibility > MOST_INFEASIBLE:
            return None
        return np.array(solver.getSolution().col_value)

    def _model(self) -> highspy.HighsLp:
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self.costs), len(self.limits)
        model.col_cost_, model.col_lower_, model.col_upper_ = self.costs, self.lower, self.upper
        model.row_lower_, model.row_upper_ = np.full(len(self.limits), -np.inf), self.limits
        by_column = np.lexsort((self.rows, self.columns))
        matrix = model.a_matrix_
        matrix.num_col_, matrix.num_row_ = model.num_col_, model.num_row_
        matrix.format_ = highspy.MatrixFormat.kColwise
        matrix.start_ = np.searchsorted(self.columns[by_column], np.arange(len(self.costs) + 1))
        matrix.index_, matrix.value_ = self.rows[by_column], self.values[by_column]
        return model
