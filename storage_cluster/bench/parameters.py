"""Sets parameters of a workload by name, for `--set` and sweeps.

A name is a path: `STAGE.PARAMETER`, `STAGE.WORK.PARAMETER` or `STAGE.WORK.OPERATION.PARAMETER`; `*` for a stage,
work or operation means all of them. Where a path names no work or operation, all that have the parameter are
meant. Parameters are the fields of the model, and `rate_per_s` and `arrivals` of an open loop. Works that end by
themselves (`prepare`, …) have neither these nor limits such as `runtime_s`.
"""

import dataclasses
import itertools
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.model import LIMITS, Arrivals, Division, Names, OpenLoop, Operation, Stage, Work, Workload
from storage_cluster.bench.selectors import Sizes, parse_selector, parse_sizes

_MEND = "give STAGE.PARAMETER=VALUE, STAGE.WORK.PARAMETER=VALUE or STAGE.WORK.OPERATION.PARAMETER=VALUE"


def change(workload: Workload, name: str, value: str) -> Workload:
    """The workload with one parameter set. Raises: WorkloadError."""
    *path, parameter = name.split(".")
    if not 1 <= len(path) <= 3:
        raise WorkloadError(f"{name} names no parameter", _MEND)
    changer = _Changer([*path, *["*"] * (3 - len(path))], parameter, value)
    try:
        stages = tuple(changer.stage(stage) for stage in workload.stages)
    except ValueError as error:
        raise WorkloadError(f"{name}: {error}", _MEND) from None
    if not changer.changed_count:
        raise WorkloadError(f"{name} is nothing in this workload; its stages: {_outline(workload)}", _MEND)
    return dataclasses.replace(workload, stages=stages)


def combinations(sweep: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """Every combination of values, the last parameter changing fastest; one empty one if there is no sweep."""
    for values in itertools.product(*sweep.values()):
        yield dict(zip(sweep, values, strict=True))


def describe_parameters(workload: Workload) -> dict[str, str]:
    """Every parameter that `change` sets and that says something in this workload, with its value."""
    found: dict[str, str] = {}
    for stage in workload.stages:
        for work in stage.works:
            place = f"{stage.name}.{work.name}"
            found[f"{place}.workers"] = str(work.workers)
            if work.open_loop is not None:
                found[f"{place}.rate_per_s"] = f"{work.open_loop.rate_per_s:g}"
                found[f"{place}.arrivals"] = str(work.open_loop.arrivals)
            if work.schedule:
                found[f"{place}.speed"] = f"{work.speed:g}"
            limits = {name: getattr(work, name) for name in (*LIMITS, "retries_max")}
            found |= {f"{place}.{name}": f"{value:g}" for name, value in limits.items() if value}
            for operation in () if work.schedule else work.operations:
                found |= _describe_operation(f"{place}.{operation.title}", operation, len(work.operations) > 1)
    return found


def _describe_operation(place: str, operation: Operation, in_mix: bool) -> dict[str, str]:
    found = {f"{place}.ratio": f"{operation.ratio:g}"} if in_mix else {}
    if operation.planned:
        return found
    found[f"{place}.containers"] = str(operation.containers.selector)
    if operation.objects is not None:
        found[f"{place}.objects"] = str(operation.objects.selector)
    if operation.sizes is not None:
        found[f"{place}.sizes"] = str(operation.sizes)
    return found


class _Changer:
    def __init__(self, path: list[str], parameter: str, value: str) -> None:
        self._path = path
        self._parameter = parameter
        self._value = value
        self.changed_count = 0

    def stage(self, stage: Stage) -> Stage:
        if self._path[0] not in ("*", stage.name):
            return stage
        works = tuple(self._work(work) for work in stage.works)
        return self._set(dataclasses.replace(stage, works=works), "closure_delay_s")

    def _work(self, work: Work) -> Work:
        if self._path[1] not in ("*", work.name):
            return work
        operations = tuple(self._operation(operation) for operation in work.operations)
        work = dataclasses.replace(work, operations=operations)
        if work.kind is not None and self._parameter in (*LIMITS, "rate_per_s", "arrivals"):
            return work
        if self._parameter in ("rate_per_s", "arrivals"):
            load = self._set(work.open_loop or OpenLoop(1.0), self._parameter)
            return dataclasses.replace(work, open_loop=load)
        if self._parameter == "speed" and not float(self._value) > 0:
            raise ValueError("a speed is greater than 0")
        return self._set(work, *(field.name for field in dataclasses.fields(Work)))

    def _operation(self, operation: Operation) -> Operation:
        if self._path[2] not in ("*", operation.title):
            return operation
        return self._set(operation, *(field.name for field in dataclasses.fields(Operation)))

    def _set(self, owner: Any, *names: str) -> Any:
        if self._parameter not in names:
            return owner
        current = getattr(owner, self._parameter)
        hint = typing.get_type_hints(type(owner))[self._parameter]
        if hint == Names | None and current is None:
            return owner
        self.changed_count += 1
        return dataclasses.replace(owner, **{self._parameter: _convert(hint, current, self._value)})


def _convert(hint: Any, current: Any, text: str) -> Any:
    """A value for a field. Raises: ValueError."""
    if hint in (Names, Names | None):
        return dataclasses.replace(current, selector=parse_selector(text))
    parsers: dict[Any, Callable[[str], Any]] = {
        int: int, float: float, str: str, Sizes | None: parse_sizes, bool: _boolean, Arrivals: Arrivals,
        Division: Division,
    }  # fmt: skip
    if hint not in parsers:
        raise ValueError("this parameter cannot be set")
    return parsers[hint](text)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _outline(workload: Workload) -> str:
    return ", ".join(f"{stage.name} ({', '.join(work.name for work in stage.works)})" for stage in workload.stages)
