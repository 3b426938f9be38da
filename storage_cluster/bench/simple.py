"""`tracer bench run put` and `get`: a workload without a file."""

import dataclasses

from storage_cluster.bench.model import Division, Kind, Names, Operation, Stage, Work, Workload
from storage_cluster.bench.selectors import Selector, Sizes, constant


def workload(
    operation: str,
    *,
    count: int,
    size_bytes: int,
    concurrency: int,
    retries_max: int,
    container: str,
    seconds: float = 0.0,
    connects_max: int = 0,
    connections_max: int = 0,
) -> Workload:
    """Put objects `object-000000`, `object-000001`, … once each; or get them, after putting those that are missing.

    With `seconds`, only as many as fit in that time.
    """
    put = Operation(
        Kind.WRITE,
        name="put",
        containers=Names(constant(0), container, fixed=True),
        objects=Names(Selector("r", 0, count - 1), "object-", digits=6),
        sizes=Sizes(constant(size_bytes), 1),
    )
    workers = min(concurrency, count)
    stages = [_stage("container", Work("container", Kind.INIT, (Operation(Kind.INIT, containers=put.containers),)))]
    if operation == "get":
        prepare = dataclasses.replace(
            put, kind=Kind.PREPARE, name="prepare", division=Division.OBJECT, skip_present=True
        )
        stages.append(_stage("prepare", Work("prepare", Kind.PREPARE, (prepare,), workers=workers)))
        put = dataclasses.replace(put, kind=Kind.READ, name="get", sizes=None, hash_check=True)
    main = Work(
        operation, None, (put,), workers=workers, total_ops=count, runtime_s=seconds,
        retries_max=retries_max, connects_max=connects_max, connections_max=connections_max,
        acceptable_failures_ppm=1_000_000,
    )  # fmt: skip
    return Workload(operation, (*stages, _stage(operation, main)), source="command")


def _stage(name: str, work: Work) -> Stage:
    scan = work if work.kind is None else dataclasses.replace(work, acceptable_failures_ppm=0)
    return Stage(name, (scan,))
