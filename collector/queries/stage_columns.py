"""The stages of all clients' requests, stage by stage, for questions about one request against many.

The ledger is read once (`collector.reporting.comparison.stages_of_trace`); what a question then reads are columns of
numbers, of long tables in files that are mapped. A request is a row here; rows of a trace ascend by time.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from collector.execution.long_columns import LongColumns
from collector.trace.time_columns import Int64Array

Rows = NDArray[np.uint32]
Mask = NDArray[np.bool_]


class Stage(Struct, frozen=True):
    """What requests spent on a stage: those that spent anything on it, each once."""

    row: Rows
    took_ns: Int64Array

    def among(self, chosen: Mask) -> Int64Array:
        """What those that are `chosen` spent on it. Arguments: of each row, whether it is one."""
        return self.took_ns[chosen[self.row]]

    def of(self, row: int) -> int:
        """What a request spent on it, ns."""
        return int(self.took_ns[self.row == row].sum())


class StageColumns(Struct, frozen=True):
    """The stages of some requests."""

    trace_id: Int64Array  # of each row
    took_ns: Int64Array  # the sum of its stages
    stages: Mapping[str, Stage]

    @classmethod
    def of(cls, parts: Iterable[pl.DataFrame], most: int) -> "StageColumns":
        """Arguments: stages as `collector.reporting.stage_times.request_stages` has them, in parts, each stage of a
        request in one of them; the most requests that there may be.

        Memory: 16 bytes a request, and a part; 12 bytes a stage, of long tables in files.
        Raises: `ResourceError` if there is no room for these.
        """
        ids, took = np.zeros(most, np.int64), np.zeros(most, np.int64)
        count, names = 0, set[str]()
        with LongColumns() as kept:
            for part in parts:
                row = part["request"].to_numpy()
                ids[row] = part["trace_id"].to_numpy()
                count = max(count, int(row.max()) + 1 if len(row) else 0)
                for (stage,), rows in part.group_by("stage"):
                    name, row, spent = str(stage), rows["request"].to_numpy(), rows["duration_ns"].to_numpy()
                    took[row] += spent
                    kept.add(**{f"row {name}": row, f"took {name}": spent})
                    names.add(name)
            stages = {name: Stage(kept.whole(f"row {name}"), kept.whole(f"took {name}")) for name in sorted(names)}
        return cls(ids[:count], took[:count], stages)

    def of_request(self, row: int) -> dict[str, int]:
        """What a request spent on each of its stages, ns."""
        spent = {name: stage.of(row) for name, stage in self.stages.items()}
        return {name: took_ns for name, took_ns in spent.items() if took_ns}

    def merge(self, names: Mapping[str, str]) -> "StageColumns":
        """The same, with some stages under other names; those under one name are one. Arguments: new names by old."""
        groups: dict[str, list[Stage]] = {}
        for name, stage in self.stages.items():
            groups.setdefault(names.get(name, name), []).append(stage)
        stages = {name: group[0] if len(group) == 1 else self._sum(group) for name, group in groups.items()}
        return StageColumns(self.trace_id, self.took_ns, stages)

    def _sum(self, group: Iterable[Stage]) -> Stage:
        took = np.zeros(len(self.took_ns), np.int64)
        for stage in group:
            took[stage.row] += stage.took_ns
        row = np.flatnonzero(took)
        return Stage(row.astype(np.uint32), took[row])
