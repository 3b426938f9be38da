"""Document 003: GET and PUT through one S3 gateway, by workers and by size, on hard disks and on SSDs.

The machines are those of its figure 2: the bundled topology's client, gateway and three storage hosts, each with one
device, three replicas (Ceph's default; the document names none). Load is COSBench's, as there: a run for each setup,
written as COSBench XML, with a stage for each point of its curves.

    medium      bandwidths of the document's table 3; positioning of `servers/disks/medium.py`
    page cache  before each device, of 1 GiB (disk) and 3 GiB (SSD): what Ceph's OSD gives itself by default
                (bluestore_cache_size_hdd, bluestore_cache_size_ssd). `cold` setups have none.
    gateway     RGW's cache, which the document switches off, holds what is known of users and buckets, and no bodies:
                here `[s3] info_cache_s` = 0. Two setups are ours: in `ssd-bodies` the gateway keeps bodies, too
                (`cache_mib`), in `ssd-processes` it is two processes (`workers`).
    network     10 Gbit/s, as there
    processor   that of this machine, shared by all hosts. Setups `equal-N` are ours: each host but the client has a
                quarter of a core, and N gateways stand behind a balancer

A point lasts some seconds. Where those would hold few objects for each worker, it is a number of objects, and it lasts
until the last one is done. All points of a curve are measured twice, in two passes, and the pass with more throughput
counts: whatever else runs on the machine makes a point slower, nothing makes it faster.

Departures: the document's load generator ran on the gateway's host, ours has one of its own; its largest objects at 16
workers, 16 of 1 GB with three replicas, are left out.

Source: 高橋, 建部: 高性能計算に向けた分散オブジェクトストレージ Ceph の性能評価 (figures 4 to 9, tables 1 to 4).
"""

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from storage_cluster import topology
from storage_cluster.bench.paper.points import Point
from storage_cluster.bench.paper.stage_use import mean_use
from storage_cluster.bench.results.figures import in_ms
from storage_cluster.bench.results.folder import Run

MB = 1_000_000
WORKERS = (1, 2, 4, 8, 16, 32, 64, 128)
SIZES = {"10KB": 10_000, "100KB": 100_000, "1MB": MB, "10MB": 10 * MB, "100MB": 100 * MB, "1GB": 1000 * MB}
FEW, MANY = 1, 16
"""Workers of the curves by size."""
LARGEST_MANY, LARGEST_PUT = "100MB", "100MB"
SECONDS, PASSES = 4.0, 2
QUICK_SECONDS = 1.0
ONE_PASS_BYTES = 1600 * MB
"""A point that moves so many bytes is measured once."""
RATES_BYTES_PER_S = {"get": 200 * MB, "put": 60 * MB}
"""About what the cluster does: decides which points are a number of objects."""
ROUNDS_MIN = 10
"""Objects for each worker that a point of some seconds needs."""
PREPARED_BYTES = 1600 * MB
PREPARED_MAX, PREPARED_MIN = 64, 2
REPLICAS = 3
SPARE = 2
"""Of the free space at most one byte in so many is filled."""
HOSTS = ("client", "gateway", "storage1", "storage2", "storage3")
BUCKETS = "bucket"
_DEVICES = re.compile(r"^devices = \[.*\]$", re.MULTILINE)
_HDD = 'media = "hdd", read_bytes_per_s = 132_000_000, write_bytes_per_s = 102_000_000'
_SSD = 'media = "ssd", read_bytes_per_s = 453_000_000, write_bytes_per_s = 390_000_000'
HDD_READ_BYTES_PER_S = 132 * MB
CPU_SHARE = 0.25


@dataclasses.dataclass(frozen=True)
class Setup:
    """A cluster."""

    name: str
    words: str
    device: str
    cache_mib: int = 0
    options: tuple[tuple[str, str], ...] = ()
    """Options of `[s3]`, as the topology has them."""
    gateways: int = 0
    """So many behind a balancer, on hosts of one speed; 0: one, without."""


SETUPS = {
    setup.name: setup
    for setup in (
        Setup("hdd", "HDD", _HDD, 1024),
        Setup("ssd", "SSD", _SSD, 3072),
        Setup("ssd-no-cache", "SSD, gateway's cache off", _SSD, 3072, (("info_cache_s", "0.0"),)),
        Setup("ssd-bodies", "SSD, gateway keeps bodies", _SSD, 3072, (("cache_mib", "1024"),)),
        Setup("ssd-processes", "SSD, two gateway processes", _SSD, 3072, (("workers", "2"),)),
        Setup("hdd-cold", "HDD, no page cache", _HDD),
        Setup("ssd-cold", "SSD, no page cache", _SSD),
        Setup("equal-1", "one gateway", _SSD, 3072, gateways=1),
        Setup("equal-2", "two gateways", _SSD, 3072, gateways=2),
        Setup("equal-3", "three gateways", _SSD, 3072, gateways=3),
    )
}
GET_WORKERS, GET_SIZES, PUT_WORKERS, PUT_SIZES, BALANCED = (
    "get-workers", "get-sizes", "put-workers", "put-sizes", "balanced"
)  # fmt: skip
_SWEEPS = {
    GET_WORKERS: ("hdd", "ssd", "ssd-no-cache", "ssd-bodies", "ssd-processes", "hdd-cold"),
    GET_SIZES: ("hdd", "ssd", "ssd-no-cache", "hdd-cold", "ssd-cold"),
    PUT_WORKERS: ("hdd", "ssd"),
    PUT_SIZES: ("hdd", "ssd"),
    BALANCED: ("equal-1", "equal-2", "equal-3"),
}
BALANCED_WORKERS = (1, 16, 128)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The part of the sweep to run."""

    setups: tuple[str, ...] = tuple(SETUPS)
    workers: tuple[int, ...] = WORKERS
    largest: str = "1GB"
    seconds: float = SECONDS
    passes: int = PASSES
    sweeps: tuple[str, ...] = tuple(_SWEEPS)
    has_all_traces: bool = True

    @property
    def sizes(self) -> tuple[str, ...]:
        """The sizes up to the largest."""
        return tuple(size for size in SIZES if SIZES[size] <= SIZES[self.largest])


QUICK = Plan(
    setups=("hdd", "ssd", "equal-1", "equal-2"),
    workers=(1, 16, 128),
    largest="10MB",
    seconds=QUICK_SECONDS,
    passes=1,
    sweeps=(GET_WORKERS, GET_SIZES, PUT_WORKERS, BALANCED),
    has_all_traces=False,
)


@dataclasses.dataclass(frozen=True)
class Measured:
    """The results at a point."""

    workers: int
    size: str
    mb_per_s: float
    mean_ms: float
    failures_count: int
    cpu_percent: dict[str, float]  # host: of one core
    cpu_wait_percent: dict[str, float]
    disk_busy_percent: float  # the busiest device, of the time
    objects_count: int
    spread_percent: float = 0.0  # how much less the other pass had


Curve = list[Measured]
Curves = dict[tuple[str, str, int], Curve]
"""(sweep, setup, workers or 0 for a curve by workers) to its points."""


def without_balancer(plan: Plan) -> Plan:
    """The plan without the setups that need a balancer."""
    return dataclasses.replace(plan, setups=tuple(name for name in plan.setups if not SETUPS[name].gateways))


def points(plan: Plan, folder: Path) -> list[Point]:
    """A run for each sweep and setup; writes the topologies and workloads that they need."""
    made = []
    for sweep in plan.sweeps:
        for name in (name for name in _SWEEPS[sweep] if name in plan.setups):
            setup = SETUPS[name]
            file = folder / f"{sweep}-{name}.xml"
            file.write_text(_workload(sweep, plan), "utf-8")
            share = CPU_SHARE if setup.gateways else 0.0
            made.append(
                Point(f"{sweep}-{name}", (str(file), "--read-timeout", "300"), write_topology(setup, folder), share)
            )
    return made


def largest_that_fits(free_bytes: int) -> str:
    """The largest size whose objects, and those written before them, fit on the disk."""
    fitting = [size for size in SIZES if 2 * SIZES[size] * prepared_count(size) * REPLICAS * SPARE <= free_bytes]
    return fitting[-1] if fitting else next(iter(SIZES))


def prepared_count(size: str) -> int:
    """The number of objects that are read."""
    return min(max(PREPARED_BYTES // SIZES[size], PREPARED_MIN), PREPARED_MAX)


def prepare_stages(size: str) -> Iterator[str]:
    """The stages that make the objects of a size."""
    where = _where(size)
    count = prepared_count(size)
    config = f"{where};objects=r(1,{count});sizes=c({SIZES[size]})B"
    yield _stage(f"init-{size}", f'<work type="init" workers="1" config="{where}" />')
    yield _stage(f"prepare-{size}", f'<work type="prepare" workers="{min(count, 8)}" config="{config}" />')


def workload(name: str, stages: Sequence[str]) -> str:
    """A COSBench file for the cluster's gateway."""
    parts = "\n    ".join(stages)
    storage = '<storage type="s3" config="path_style_access=true" />'
    return f'<workload name="{name}">\n  {storage}\n  <workflow>\n    {parts}\n  </workflow>\n</workload>\n'


def load_stage(method: str, workers: int, size: str, *, seconds: float, number: int = 1, operations: int = 0) -> str:
    """A point: so many seconds of load, or a number of operations where that is given or seconds would hold too few."""
    count = prepared_count(size)
    operations = operations or operations_instead(method, workers, size, seconds)
    limit = f'totalOps="{operations}"' if operations else f'runtime="{round(seconds)}"'
    if method == "get":
        operation = f'<operation type="read" ratio="100" config="{_where(size)};objects=u(1,{count})" />'
    else:
        config = f"{_where(size)};objects=u(1001,{1000 + max(count, workers)});sizes=c({SIZES[size]})B"
        operation = f'<operation type="write" ratio="100" config="{config}" />'
    work = f'<work name="load" workers="{workers}" {limit}>{operation}</work>'
    return _stage(f"{method}-{workers}-{size}-{number}", work)


def operations_instead(method: str, workers: int, size: str, seconds: float) -> int:
    """The number of operations that takes the place of a time that would hold few for each worker; otherwise 0."""
    rounds = seconds * RATES_BYTES_PER_S[method] / SIZES[size] / workers
    return 0 if rounds >= ROUNDS_MIN else max(workers * max(round(rounds), 1), PREPARED_MIN)


def _passes(plan: Plan, method: str, loads: Sequence[tuple[int, str]]) -> Iterator[str]:
    """The points of a curve, pass by pass; those that move many bytes once."""
    for number in range(1, plan.passes + 1):
        for workers, size in loads:
            operations = operations_instead(method, workers, size, plan.seconds)
            if number == 1 or operations * SIZES[size] < ONE_PASS_BYTES:
                yield load_stage(method, workers, size, seconds=plan.seconds, number=number)


def _where(size: str) -> str:
    return f"cprefix={BUCKETS}-{size.lower()}-;containers=c(1)"


def _stage(name: str, work: str) -> str:
    return f'<workstage name="{name}">{work}</workstage>'


def _workload(sweep: str, plan: Plan) -> str:
    return workload(sweep, list(_STAGES[sweep](plan)))


def _get_by_workers(plan: Plan) -> Iterator[str]:
    yield from prepare_stages("1MB")
    yield from _passes(plan, "get", [(workers, "1MB") for workers in plan.workers])


def _put_by_workers(plan: Plan) -> Iterator[str]:
    yield from _init("1MB")
    yield from _passes(plan, "put", [(workers, "1MB") for workers in plan.workers])


def _through_balancer(plan: Plan) -> Iterator[str]:
    yield from prepare_stages("1MB")
    for method in ("get", "put"):
        yield from _passes(plan, method, [(workers, "1MB") for workers in BALANCED_WORKERS])


def _get_by_size(plan: Plan) -> Iterator[str]:
    for size in plan.sizes:
        yield from prepare_stages(size)
        yield from _passes(plan, "get", [(workers, size) for workers in _workers_of(size, LARGEST_MANY)])
        yield _cleanup(size)


def _put_by_size(plan: Plan) -> Iterator[str]:
    for size in (each for each in plan.sizes if SIZES[each] <= SIZES[LARGEST_PUT]):
        yield from _init(size)
        yield from _passes(plan, "put", [(workers, size) for workers in _workers_of(size, LARGEST_PUT)])


def _init(size: str) -> Iterator[str]:
    yield next(iter(prepare_stages(size)))


def _workers_of(size: str, largest_many: str) -> tuple[int, ...]:
    return (FEW, MANY) if SIZES[size] <= SIZES[largest_many] else (FEW,)


def _cleanup(size: str) -> str:
    config = f"{_where(size)};objects=r(1,{prepared_count(size)})"
    return _stage(f"cleanup-{size}", f'<work type="cleanup" workers="8" config="{config}" />')


_STAGES: dict[str, Callable[[Plan], Iterator[str]]] = {
    GET_WORKERS: _get_by_workers,
    GET_SIZES: _get_by_size,
    PUT_WORKERS: _put_by_workers,
    PUT_SIZES: _put_by_size,
    BALANCED: _through_balancer,
}


def collect_results(runs: Mapping[str, Run]) -> Curves:
    """The curves of all finished runs."""
    found: Curves = {}
    for sweep, setups in _SWEEPS.items():
        for name in setups:
            run = runs.get(f"{sweep}-{name}")
            for method, point in _best_passes(run) if run is not None else ():
                by_size = sweep in (GET_SIZES, PUT_SIZES)
                key = f"{sweep}-{method}" if sweep == BALANCED else sweep
                found.setdefault((key, name, point.workers if by_size else 0), []).append(point)
    return found


def missing_curves(curves: Curves) -> list[tuple[str, str]]:
    """The sweeps and setups that were not measured."""
    there = {(sweep.removesuffix("-get").removesuffix("-put"), setup) for sweep, setup, _ in curves}
    return [(sweep, setup) for sweep, setups in _SWEEPS.items() for setup in setups if (sweep, setup) not in there]


def _best_passes(run: Run) -> list[tuple[str, Measured]]:
    """Of each point the pass with more throughput, in the order of the first ones."""
    passes: dict[tuple[str, int, str], list[Measured]] = {}
    for method, measured in _points_of(run):
        passes.setdefault((method, measured.workers, measured.size), []).append(measured)
    return [(method, _best_pass(found)) for (method, _, _), found in passes.items()]


def _best_pass(found: Sequence[Measured]) -> Measured:
    best = max(found, key=lambda each: each.mb_per_s)
    least = min(each.mb_per_s for each in found)
    spread_percent = 100 * (1 - least / best.mb_per_s) if best.mb_per_s else 0.0
    failures_count = sum(each.failures_count for each in found)
    return dataclasses.replace(best, spread_percent=spread_percent, failures_count=failures_count)


def _points_of(run: Run) -> Iterator[tuple[str, Measured]]:
    for stage in run.info.stages:
        method, _, rest = stage.name.partition("-")
        keys = [key for key in run.tally.figures if key.stage == stage.name]
        if method not in ("get", "put") or not keys:
            continue
        workers, size, _ = rest.split("-")
        figures = run.tally.figures[keys[0]]
        elapsed_s = run.info.elapsed_s(keys[0], figures)
        use = mean_use(run, stage.name)
        hosts = list(dict.fromkeys(host for host, _ in use))
        yield (
            method,
            Measured(
                int(workers),
                size,
                figures.bytes / elapsed_s / MB,
                in_ms(figures.response.mean_ns),
                figures.failures_count,
                {host: use.get((host, "cpu_percent"), 0.0) for host in hosts},
                {host: use[host, "cpu_wait_percent"] for host in hosts if (host, "cpu_wait_percent") in use},
                max((value for (_, metric), value in use.items() if "disk_busy" in metric), default=0.0),
                figures.successes_count,
            ),
        )


def write_topology(setup: Setup, folder: Path) -> Path:
    """Write the topology of a cluster; its file."""
    text = (topology.BUNDLED_DIR / "six-hosts.toml").read_text("utf-8")
    cache = f", cache_mib = {setup.cache_mib}" if setup.cache_mib else ""
    text = _DEVICES.sub(f'devices = [{{ name = "d1", weight = 1.0, {setup.device}{cache} }}]', text)
    text = re.sub(r"^rate_bits_per_s = \S+", "rate_bits_per_s = 10_000_000_000", text, flags=re.MULTILINE)
    text = re.sub(r"^burst_bytes = \S+", "burst_bytes = 131_072", text, flags=re.MULTILINE)
    for option, value in setup.options:
        text = re.sub(rf"^{option} = \S+", f"{option} = {value}", text, count=1, flags=re.MULTILINE)
    where = folder / f"{setup.name}.toml"
    where.write_text(_with_balancer(text, setup.gateways) if setup.gateways else text, "utf-8")
    return where


def _with_balancer(text: str, gateways: int) -> str:
    """The topology with so many gateways behind a balancer, in the place of its one gateway."""
    hosts = [("balancer", "10.77.0.24", "balancer")]
    hosts += [(f"gateway{number}", f"10.77.0.{40 + number}", "s3") for number in range(1, gateways + 1)]
    tables = "\n".join(
        f"[[host]]\nname = {json.dumps(name)}\naddress = {json.dumps(address)}\nservices = [{json.dumps(service)}]\n"
        for name, address, service in hosts
    )
    one = re.compile(r'^\[\[host\]\]\nname = "gateway"\n.*?\n(?=\n)', re.MULTILINE | re.DOTALL)
    assert one.search(text)
    return one.sub(tables, text, count=1).replace("s3 = 8085", "s3 = 8085\nbalancer = 8085")
