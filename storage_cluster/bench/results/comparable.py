"""Whether the difference of two runs says something about the store: what else differs between them.

Two runs are not comparable if they have no operation in common, if one of them goes on, or if their common operations
move objects of other sizes or count response times otherwise (an open loop counts from when an operation was due).
Whatever else differs (workers, run time, which objects) may be what is compared, and is listed.
"""

import dataclasses
from collections.abc import Iterator

from storage_cluster.bench.results.folder import Run

_MEASURED_OTHERWISE = ("sizes", "arrivals")


@dataclasses.dataclass(frozen=True)
class Comparability:
    """What is to be known before the figures of two runs are laid side by side."""

    obstacles: tuple[str, ...]  # if there is any, they are not comparable
    differences: tuple[str, ...]


def judge(first: Run, second: Run) -> Comparability:
    """Compare what was run, on what, and how it went; A is the first, B the second."""
    return Comparability(tuple(_obstacles(first, second)), tuple(_differences(first, second)))


def _obstacles(first: Run, second: Run) -> Iterator[str]:
    for name, run in (("A", first), ("B", second)):
        if run.info.state == "running":
            yield f"{name} has not ended"
    if not first.tally.figures.keys() & second.tally.figures.keys():
        yield "they have no operation in common"
    for name, ours, theirs in _changes(first, second):
        if name.rpartition(".")[2] in _MEASURED_OTHERWISE and _is_of_both(name, first, second):
            yield f"{name}: {ours} in A, {theirs} in B"


def _differences(first: Run, second: Run) -> Iterator[str]:
    if not (first.info.workload and second.info.workload):
        yield "what one of them did is not recorded (it was run by an earlier version)"
    for name, ours, theirs in _changes(first, second):
        if name.rpartition(".")[2] not in _MEASURED_OTHERWISE:
            yield f"{name}: {ours} in A, {theirs} in B"
    stores = _endpoints(first), _endpoints(second)
    if stores[0] != stores[1]:
        yield f"the store: {', '.join(stores[0]) or 'none'} in A, {', '.join(stores[1]) or 'none'} in B"
    drivers = len(first.info.drivers), len(second.info.drivers)
    if drivers[0] != drivers[1]:
        yield f"drivers: {drivers[0]} in A, {drivers[1]} in B"
    for name, run in (("A", first), ("B", second)):
        if run.info.state not in ("done", "running"):
            yield f"{name} is {run.info.state}" + (f" ({run.info.note})" if run.info.note else "")
        for text in dict.fromkeys(mark.text for mark in run.info.marks if mark.kind in ("fault", "driver lost")):
            yield f"during {name}: {text}"


def _changes(first: Run, second: Run) -> Iterator[tuple[str, str, str]]:
    ours, theirs = first.info.workload, second.info.workload
    if ours and theirs:
        for name in dict.fromkeys([*ours, *theirs]):
            if ours.get(name) != theirs.get(name):
                yield name, ours.get(name, "none"), theirs.get(name, "none")


def _is_of_both(name: str, first: Run, second: Run) -> bool:
    """Whether a parameter is of a stage and work that did something in both runs."""
    place = tuple(name.split(".")[:2])
    return all(any(key[:2] == place for key in run.tally.figures) for run in (first, second))


def _endpoints(run: Run) -> list[str]:
    """The stores that the slowest requests of each operation went to."""
    return sorted({slow.row.endpoint for figures in run.tally.figures.values() for slow in figures.slowest})
