"""The model of a workload, whatever file it came from: stages run one after the other, works in parallel, operations by
their ratio.

    Workload ── stages ──▶ Stage ── works ──▶ Work ── operations ──▶ Operation

What is said once for all (where the store is, who asks) may be said again for a stage or a work; here each work has its
own. Nothing here does anything: `run` does.
"""

import dataclasses
import enum
import math

from storage_cluster.bench.selectors import Selector, Sizes, constant


class Kind(enum.StrEnum):
    """The kind of an operation; for a work, the kind of all its operations."""

    INIT = "init"  # make containers
    PREPARE = "prepare"  # put objects, each once
    CLEANUP = "cleanup"  # delete objects, each once
    DISPOSE = "dispose"  # delete containers
    DELAY = "delay"
    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    LIST = "list"
    HEAD = "head"


LIMITS = ("runtime_s", "total_ops", "total_bytes", "rampup_s", "rampdown_s")
"""Fields of a work that only a mix of operations may set; any other work ends by itself."""
SCANS = (Kind.INIT, Kind.PREPARE, Kind.CLEANUP, Kind.DISPOSE)
"""Kinds of works that process each of their containers and objects once, and then end."""


class Division(enum.StrEnum):
    """What is divided among the workers of a work."""

    NONE = "none"
    CONTAINER = "container"
    OBJECT = "object"


DIVISIONS = {
    Kind.INIT: Division.CONTAINER,
    Kind.DISPOSE: Division.CONTAINER,
    Kind.PREPARE: Division.OBJECT,
    Kind.CLEANUP: Division.OBJECT,
}
"""What is divided by default, as in COSBench; nothing for other kinds."""


@dataclasses.dataclass(frozen=True)
class Names:
    """Names that contain a number."""

    selector: Selector
    prefix: str
    suffix: str = ""
    digits: int = 0  # at least; filled with zeros
    fixed: bool = False  # there is one name, without a number

    def name(self, number: int) -> str:
        """The name with that number."""
        if self.fixed:
            return self.prefix + self.suffix
        return f"{self.prefix}{number:0{self.digits}d}{self.suffix}"


CONTAINERS = Names(constant(1), "mycontainers_")
OBJECTS = Names(constant(1), "myobjects_")
"""COSBench's prefixes; they are also ours."""


@dataclasses.dataclass(frozen=True, slots=True)
class Planned:
    """One request of a schedule."""

    due_ns: int  # since the schedule's first
    kind: Kind
    container: str
    object: str = ""
    size_bytes: int = 0
    status: int = 0  # what was answered when it was asked first; 0: not known


@dataclasses.dataclass(frozen=True)
class Operation:
    """One kind of request of a work."""

    kind: Kind
    ratio: float = 100.0  # of the work's operations, relative to the others' ratios
    name: str = ""  # in reports, where it is another than the kind
    containers: Names = CONTAINERS
    objects: Names | None = None
    sizes: Sizes | None = None
    division: Division = Division.NONE
    hash_check: bool = False
    zeros: bool = False  # content is zeros, otherwise random
    chunked: bool = False
    population: str = ""  # objects are those that exist, of this class (ssbench), not those that `objects` names
    make_container: bool = False  # prepare: before the objects
    delete_container: bool = False  # cleanup: after the objects
    skip_present: bool = False  # prepare: objects of the right size that are there are not put again
    delete_after_s: int = 0  # objects expire
    planned: tuple[Planned, ...] = ()  # a scan: these, not what `containers` and `objects` name

    @property
    def title(self) -> str:
        """Its name in reports."""
        return self.name or str(self.kind)


class Arrivals(enum.StrEnum):
    """How the arrivals of an open loop are spaced."""

    EVEN = "even"
    POISSON = "poisson"


@dataclasses.dataclass(frozen=True)
class Step:
    """A part of a ramp: up to `rate_per_s` (open loop) or `workers` (closed) within `seconds`, in a straight line."""

    seconds: float
    to: float


@dataclasses.dataclass(frozen=True)
class OpenLoop:
    """Requests begin at a rate, whether or not earlier ones have ended; latency counts from when each was due."""

    rate_per_s: float
    arrivals: Arrivals = Arrivals.POISSON


@dataclasses.dataclass(frozen=True)
class StorageConfig:
    """The kind of store, and its options."""

    kind: str = "swift"
    options: tuple[tuple[str, str], ...] = ()  # as the file has them
    where: str = ""  # in the file, for errors

    def option(self, name: str, default: str = "") -> str:
        """One of the options."""
        return dict(self.options).get(name, default)


@dataclasses.dataclass(frozen=True)
class AuthConfig(StorageConfig):
    """The credentials, and how to obtain a token."""

    kind: str = "none"
    cached: bool = True  # a token is fetched once; otherwise by every work anew


@dataclasses.dataclass(frozen=True)
class Work:
    """Workers that run operations until the work's limit or the end of its range."""

    name: str
    kind: Kind | None  # None: a mix, as its operations say
    operations: tuple[Operation, ...]
    workers: int = 1
    runtime_s: float = 0.0  # 0: no limit
    total_ops: int = 0
    total_bytes: int = 0
    rampup_s: float = 0.0  # done, but not counted
    rampdown_s: float = 0.0
    interval_s: int = 1  # of the timeline
    driver: str = ""  # "": all of them
    acceptable_failures_ppm: int = 200_000
    retries_max: int = 0
    connects_max: int = 0  # attempts at a connection, within those; 0: no other limit
    connections_max: int = 0  # of the process, as a limit on its open files has it: those beyond fail; 0: none
    keep_alive: bool = True
    open_loop: OpenLoop | None = None  # None: closed loop
    ramp: tuple[Step, ...] = ()
    schedule: tuple[Planned, ...] = ()  # an open loop of these requests
    speed: float = 1.0  # of the schedule: 2 is twice as fast
    storage: StorageConfig = StorageConfig()
    auth: AuthConfig = AuthConfig()

    @property
    def workers_max(self) -> int:
        """The greatest number of workers at any time."""
        if self.open_loop is not None:
            return self.workers
        return max(self.workers, *(math.ceil(step.to) for step in self.ramp)) if self.ramp else self.workers

    @property
    def is_scan(self) -> bool:
        """Whether it ends by itself."""
        return self.kind in SCANS


@dataclasses.dataclass(frozen=True)
class Stage:
    """Works that run in parallel."""

    name: str
    works: tuple[Work, ...]
    closure_delay_s: float = 0.0  # afterwards


@dataclasses.dataclass(frozen=True)
class Workload:
    """The whole workload."""

    name: str
    stages: tuple[Stage, ...]
    description: str = ""
    source: str = ""  # cosbench, ssbench, toml, command
    notices: tuple[str, ...] = ()  # what its file says without effect, and where
