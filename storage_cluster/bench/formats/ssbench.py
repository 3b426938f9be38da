"""ssbench's scenario files.

A scenario is three stages here: its containers, its initial objects (those that are there are left alone, as ssbench
does), the run; and a fourth that deletes what the run created. In the run a size class is drawn by its share of the
initial objects, then create, read, update or delete by the class's CRUD profile. Reads and updates go round the objects
that exist, a delete takes the oldest.

Departures: initial objects of each class are spread over the containers on their own, not interleaved with the other
classes; the content is this generator's, not a letter repeated.

Source: ssbench 0.3.9, README and `scenario.py`.
"""

import dataclasses
import json
from collections.abc import Iterator

from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.formats.tables import Table
from storage_cluster.bench.formats.xml import MEND
from storage_cluster.bench.model import Kind, Names, Operation, Stage, StorageConfig, Work, Workload
from storage_cluster.bench.selectors import Selector, Sizes, constant

RETRIES_MAX = 10
CRUD = ((Kind.WRITE, "create"), (Kind.READ, "read"), (Kind.WRITE, "update"), (Kind.DELETE, "delete"))
_DIGITS = 6


@dataclasses.dataclass(frozen=True)
class _Class:
    """A size class: what its objects are called, how large they are, what is done to them."""

    name: str
    sizes: Sizes
    profile: tuple[float, ...]
    initial_count: int


@dataclasses.dataclass(frozen=True)
class _Scenario:
    """A scenario's values."""

    name: str
    classes: tuple[_Class, ...]
    containers: Names
    containers_workers: int
    users: int
    run_seconds: int
    operation_count: int
    delete_after_s: int
    storage: StorageConfig


def parse_ssbench(text: str, file: str) -> Workload:
    """The workload in a scenario. Raises: WorkloadError."""
    try:
        values = json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise WorkloadError(f"{file} line {line}: not JSON ({getattr(error, 'msg', error)})", MEND) from None
    if not isinstance(values, dict):
        raise WorkloadError(f"{file}: a scenario is a table, in braces", MEND)
    scenario = _scenario(Table(file, text, "", values))
    return Workload(scenario.name, tuple(_stages(scenario)), source="ssbench")


def _scenario(table: Table) -> _Scenario:
    policy = table.take("policy", str, "")
    base, count = table.take("container_base", str, "ssbench"), table.number("container_count", 100, least=1)
    seconds = table.number("run_seconds", 0)
    made = _Scenario(
        name=table.take("name", str),
        classes=_classes(table, _profile(table)),
        containers=Names(Selector("r", 0, count - 1), f"{base}_", f"_{policy or 'default_policy'}", _DIGITS),
        containers_workers=table.number("container_concurrency", 10, least=1),
        users=table.number("user_count", least=1),
        run_seconds=seconds,
        operation_count=0 if seconds else table.number("operation_count", least=1),
        delete_after_s=table.number("delete_after", 0),
        storage=StorageConfig(options=(("policy", policy),) if policy else ()),
    )
    if seconds and "operation_count" in table:
        table.fail("stands beside run_seconds; give one of them", "operation_count")
    table.finish()
    return made


def _classes(table: Table, profile: tuple[float, ...]) -> tuple[_Class, ...]:
    initial = table.table("initial_files")
    found = []
    for inner in table.tables("sizes"):
        name = inner.take("name", str)
        low, high = inner.number("size_min"), inner.number("size_max")
        if low > high:
            inner.fail(f"{high} is less than size_min", "size_max")
        own = _profile(inner) if "crud_profile" in inner else profile
        inner.finish()
        found.append(_Class(name, Sizes(Selector("u", low, high), 1), own, initial.number(name, 0)))
    initial.finish()
    if not any(each.initial_count for each in found):
        table.fail("no class has any, and their share is what decides how often a class is drawn", "initial_files")
    return tuple(each for each in found if each.initial_count)


def _profile(table: Table) -> tuple[float, ...]:
    values = table.take("crud_profile", list)
    if len(values) != len(CRUD) or not all(type(value) in (int, float) and value >= 0 for value in values):
        table.fail(f"{values} is not four numbers: create, read, update, delete", "crud_profile")
    if not sum(values):
        table.fail("all four are 0", "crud_profile")
    return tuple(float(value) for value in values)


def _stages(scenario: _Scenario) -> Iterator[Stage]:
    containers = Operation(Kind.INIT, containers=scenario.containers)
    yield _stage(scenario, "containers", Kind.INIT, (containers,), scenario.containers_workers)
    yield _stage(scenario, "initial", Kind.PREPARE, tuple(_initial(scenario)), scenario.users)
    run = Work(
        "run",
        None,
        tuple(_mix(scenario)),
        workers=scenario.users,
        runtime_s=scenario.run_seconds,
        total_ops=scenario.operation_count,
        retries_max=RETRIES_MAX,
        acceptable_failures_ppm=1_000_000,
        storage=scenario.storage,
    )
    yield Stage("run", (run,))
    created = (
        Operation(Kind.CLEANUP, containers=scenario.containers, population=each.name) for each in scenario.classes
    )
    yield _stage(scenario, "delete", Kind.CLEANUP, tuple(created), scenario.users)


def _stage(scenario: _Scenario, name: str, kind: Kind, operations: tuple[Operation, ...], workers: int) -> Stage:
    work = Work(
        name, kind, operations, workers=workers, retries_max=RETRIES_MAX, acceptable_failures_ppm=0,
        storage=scenario.storage,
    )  # fmt: skip
    return Stage(name, (work,))


def _initial(scenario: _Scenario) -> Iterator[Operation]:
    for each in scenario.classes:
        yield Operation(
            Kind.PREPARE,
            containers=scenario.containers,
            objects=Names(Selector("r", 1, each.initial_count), f"{each.name}_", digits=_DIGITS),
            sizes=each.sizes,
            population=each.name,
            skip_present=True,
            delete_after_s=scenario.delete_after_s,
        )


def _mix(scenario: _Scenario) -> Iterator[Operation]:
    total = sum(each.initial_count for each in scenario.classes)
    newest = max(each.initial_count for each in scenario.classes)
    for each in scenario.classes:
        for (kind, name), part in zip(CRUD, each.profile, strict=True):
            if part:
                writes = kind is Kind.WRITE
                yield Operation(
                    kind,
                    100 * each.initial_count / total * part / sum(each.profile),
                    f"{name} {each.name}",
                    containers=scenario.containers,
                    objects=Names(constant(newest + 1), f"{each.name}_", digits=_DIGITS) if name == "create" else None,
                    sizes=each.sizes if writes else None,
                    population=each.name,
                    delete_after_s=scenario.delete_after_s if writes else 0,
                )
