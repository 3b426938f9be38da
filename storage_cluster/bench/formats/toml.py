"""Our own short form, for new work: TOML whose keys are the model's.

name = "small puts"

[auth]                              # leave it out for the cluster that is up
kind = "tempauth"
auth_url = "http://10.77.0.31:5000/auth/v1.0"
username = "test:tester"
password = "testing"

[storage]                           # of another kind: S3; without keys, the environment's (AWS_ACCESS_KEY_ID, …)
kind = "s3"
endpoint = "http://10.77.0.40:9000"
part_size_bytes = 8388608           # larger objects in parts; all options: storage/s3_options.py

[[stage]]
name = "init"
[[stage.work]]
kind = "init"
containers = "r(1,4)"

[[stage]]
name = "main"
[[stage.work]]
workers = 64                        # of an open loop: the most at once
runtime_s = 60.0
rate_per_s = 500.0                  # an open loop; without it a closed one
arrivals = "poisson"                # or "even"
ramp = [{ seconds = 10.0, to = 1000.0 }]
operations = [
    { kind = "write", ratio = 20.0, containers = "u(1,4)", objects = "s(1,1000)", sizes = "c(1)KB" },
    { kind = "read", ratio = 80.0, containers = "u(1,4)", objects = "u(1,1000)", hash_check = true },
]

[sweep]                             # a run for each combination
"main.workers" = [1, 2, 4, 8]
"""

import tomllib

from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.formats.tables import Table
from storage_cluster.bench.formats.xml import MEND
from storage_cluster.bench.model import (
    CONTAINERS,
    DIVISIONS,
    LIMITS,
    OBJECTS,
    SCANS,
    Arrivals,
    AuthConfig,
    Division,
    Kind,
    Names,
    OpenLoop,
    Operation,
    Stage,
    Step,
    StorageConfig,
    Work,
    Workload,
)
from storage_cluster.bench.selectors import parse_selector, parse_sizes
from storage_cluster.bench.storage import s3_options

_LOADS = ("rate_per_s", "arrivals", "ramp")

Sweep = dict[str, list[str]]
"""Parameter to the values that it takes in turn."""


def parse_toml(text: str, file: str) -> tuple[Workload, Sweep]:
    """The workload in a file, and the sweep over it. Raises: WorkloadError."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise WorkloadError(f"{file}: not TOML ({error})", MEND) from None
    table = Table(file, text, "", values)
    storage, auth = _storage(table.table("storage", optional=True)), _auth(table.table("auth", optional=True))
    workload = Workload(
        table.take("name", str),
        tuple(_stage(inner, storage, auth) for inner in table.tables("stage")),
        table.take("description", str, ""),
        "toml",
    )
    if not workload.stages:
        table.fail("there is none", "stage")
    sweep = _sweep(table.table("sweep", optional=True))
    table.finish()
    return workload, sweep


def _stage(table: Table, storage: StorageConfig, auth: AuthConfig) -> Stage:
    works = tuple(_work(inner, storage, auth) for inner in table.tables("work"))
    made = Stage(table.take("name", str), works, table.take("closure_delay_s", float, 0.0))
    if not works:
        table.fail("there is none", "work")
    table.finish()
    return made


def _work(table: Table, storage: StorageConfig, auth: AuthConfig) -> Work:
    kind = table.take_parsed("kind", Kind) if "kind" in table else None
    if kind is not None and kind not in (*SCANS, Kind.DELAY):
        table.fail(f"{kind} is an operation's; list it in operations", "kind")
    for key in (*LIMITS, *_LOADS) if kind is not None else ():
        if key in table:
            table.fail(f"a work of kind {kind} ends by itself", key)
    rate = table.take("rate_per_s", float, 0.0)
    arrivals = table.take_parsed("arrivals", Arrivals, Arrivals.POISSON)
    made = Work(
        name=table.take("name", str, str(kind or "main")),
        kind=kind,
        operations=_operations(table) if kind is None else (_operation(table, kind),),
        workers=table.number("workers", 1, least=1),
        runtime_s=table.take("runtime_s", float, 0.0),
        total_ops=table.number("total_ops", 0),
        total_bytes=table.number("total_bytes", 0),
        rampup_s=table.take("rampup_s", float, 0.0),
        rampdown_s=table.take("rampdown_s", float, 0.0),
        interval_s=table.number("interval_s", 1, least=1),
        driver=table.take("driver", str, ""),
        acceptable_failures_ppm=table.number("acceptable_failures_ppm", 0 if kind else 1_000_000),
        retries_max=table.number("retries", 0),
        keep_alive=table.take("keep_alive", bool, True),
        open_loop=OpenLoop(rate, arrivals) if rate else None,
        ramp=tuple(_step(inner) for inner in table.tables("ramp", optional=True)),
        storage=storage,
        auth=auth,
    )
    if kind is None and not (made.runtime_s or made.total_ops or made.total_bytes):
        table.fail("it has no limit; give runtime_s, total_ops or total_bytes")
    table.finish()
    return made


def _operations(table: Table) -> tuple[Operation, ...]:
    found = []
    for inner in table.tables("operations"):
        kind = inner.take_parsed("kind", Kind)
        if kind in (*SCANS, Kind.DELAY):
            inner.fail(f"{kind} is a work's kind; give it there", "kind")
        found.append(_operation(inner, kind))
        inner.finish()
    if not found:
        table.fail("there is none", "operations")
    return tuple(found)


def _operation(table: Table, kind: Kind) -> Operation:
    """An operation; of a scan it is described in the work's own table."""
    with_objects = kind not in (Kind.INIT, Kind.DISPOSE, Kind.DELAY, Kind.LIST)
    division = DIVISIONS.get(kind, Division.NONE)
    containers = _names(table, "container", CONTAINERS)
    return Operation(
        kind,
        ratio=100.0 if kind in SCANS else table.take("ratio", float, 100.0),
        name="" if kind in SCANS else table.take("name", str, ""),
        containers=containers,
        objects=_names(table, "object", OBJECTS) if with_objects else None,
        sizes=table.take_parsed("sizes", parse_sizes) if kind in (Kind.WRITE, Kind.PREPARE) else None,
        division=table.take_parsed("division", Division, division),
        hash_check=table.take("hash_check", bool, False),
        zeros=table.take("zeros", bool, False),
        chunked=table.take("chunked", bool, False),
        skip_present=table.take("skip_present", bool, False),
    )


def _names(table: Table, what: str, default: Names) -> Names:
    return Names(
        table.take_parsed(f"{what}s", parse_selector),
        table.take(f"{what}_prefix", str, default.prefix),
        table.take(f"{what}_suffix", str, ""),
        table.number(f"{what}_digits", 0),
    )


def _step(table: Table) -> Step:
    made = Step(table.take("seconds", float), table.take("to", float))
    if made.seconds < 0 or made.to < 0:
        table.fail("neither may be negative")
    table.finish()
    return made


def _storage(table: Table) -> StorageConfig:
    kind = table.take("kind", str, "swift")
    names = s3_options.NAMES if kind == "s3" else ("storage_url", "token", "policy")
    options = {name: table.take_text(name) for name in names}
    table.finish()
    return StorageConfig(kind, tuple((name, value) for name, value in options.items() if value), f"{table.file}: ")


def _auth(table: Table) -> AuthConfig:
    kind = table.take("kind", str, "none")
    options = {key: str(table.take(key, str, "")) for key in ("auth_url", "username", "password")}
    table.finish()
    return AuthConfig(kind, tuple((key, value) for key, value in options.items() if value))


def _sweep(table: Table) -> Sweep:
    found = {}
    for key, values in table.rest().items():
        if not isinstance(values, list) or not values:
            table.fail(f"{values!r} is not a list of values", key)
        found[key] = [str(value) for value in values]
    return found
