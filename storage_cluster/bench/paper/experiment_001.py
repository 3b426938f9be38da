"""Document 001: writes to an S3 store on ext3 and one on ext4, and through a proxy that chooses between them by size.

The machines are those of its figure 2, as the bundled topology `two-back-ends` has them. Load is COSBench's, a run for
each setup, written as COSBench XML with a stage for each point; its w-bench, which writes sizes of 1 KB to 3 MB at
random for 30 s, is a stage whose sizes are a histogram.

    filesystems     no proxy, no model of a disk: the file systems in files on this machine's disk (figure 3)
    paper           the proxy as the document describes it, on hard disks (figures 4 and 5)
    improved        without what that costs
    …-mean          the threshold is the running mean (figure 5)
    …-saturated     no model of a disk: the processor, which all hosts share, is the limit

What is compared is measured in turns in one run: without proxy, with proxy, without, with. A point is the median of its
turns. The document does not say how many workers it had; here 1, as its w-bench seems to have, and 8.

Departures: the document's storage node is one machine with two containers, ours are two hosts; its store is MinIO, ours
the bundled gateway; heights of bars differ, what is held against it is which is higher.

Source: 内田, 亀井: I/O 情報を利用したオブジェクトストレージ向けの高速化プロキシの開発 (figures 3 to 5, §4).
"""

import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from storage_cluster import topology
from storage_cluster.bench.paper.points import Point
from storage_cluster.bench.paper.stage_use import mean_use
from storage_cluster.bench.results.figures import in_ms
from storage_cluster.bench.results.folder import Run

EXT3, EXT4, PROXY = "ext3", "ext4", "proxy"
"""What is written to: a store itself, or the proxy before both."""
THRESHOLD_KB = 100
FILESYSTEM_SIZES_KB = (1, 2, 16, 128, 512, 1024)
SIZES_KB = (1, 10, 100, 1000, 3000)
LARGER_KB = (100, 1000)
"""Sizes of reads, and of writes by many workers."""
MIXED_KB = (1, 10, 100, 1000, 2000, 3000)
MIXED = 0
"""The size of a point that writes sizes at random."""
READ_COUNT = 40
FEW, MANY, SATURATING = 1, 8, 16
HOSTS = ("client", "proxy", "ext3", "ext4")
DEVICE_MIB = 8192
_DEVICE = 'devices = [{ name = "d1", media = "hdd", filesystem = "'
_PROXYS_DEVICE = 'devices = [{ name = "d1", media = "hdd" }]'


@dataclasses.dataclass(frozen=True)
class Setup:
    """A cluster."""

    name: str
    words: str
    options: tuple[tuple[str, str], ...] = ()
    """Of `[routing]`, that differ from the bundled topology's."""
    media: str = "hdd"


_PAPER = (("body", "whole"), ("connections", "new"), ("locations", "database"))
_MEAN = (("rule", "mean"),)
SETUPS = {
    setup.name: setup
    for setup in (
        Setup("filesystems", "no proxy, no model of a disk", media="none"),
        Setup("paper", "proxy as in the paper", _PAPER),
        Setup("improved", "improved proxy"),
        Setup("paper-mean", "as in the paper, mean", (*_PAPER, *_MEAN)),
        Setup("improved-mean", "improved, mean", _MEAN),
        Setup("paper-saturated", "proxy as in the paper", _PAPER, media="none"),
        Setup("improved-saturated", "improved proxy", media="none"),
    )
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """The part to run."""

    setups: tuple[str, ...] = tuple(SETUPS)
    filesystem_sizes_kb: tuple[int, ...] = FILESYSTEM_SIZES_KB
    sizes_kb: tuple[int, ...] = SIZES_KB
    workers: tuple[int, ...] = (FEW, MANY)
    seconds: int = 3
    mixed_seconds: int = 30
    turns: int = 3


QUICK = Plan(
    setups=("filesystems", "paper", "improved", "paper-mean", "improved-mean"),
    filesystem_sizes_kb=(1, 128, 1024),
    sizes_kb=(1, 100, 1000),
    workers=(FEW,),
    seconds=1,
    mixed_seconds=5,
    turns=2,
)


@dataclasses.dataclass(frozen=True)
class Stage:
    """A point, once: what is done, to what, with which size and how many workers, in which turn."""

    method: str
    target: str
    size_kb: int
    workers: int
    turn: int

    @property
    def name(self) -> str:
        """Its name in the run."""
        return f"{self.method}-{self.target}-{self.size_kb}-{self.workers}-{self.turn}"

    @classmethod
    def of(cls, name: str) -> "Stage | None":
        """The stage of that name; None if it is one that only prepares."""
        parts = name.split("-")
        return cls(parts[0], parts[1], *map(int, parts[2:])) if parts[0] in ("put", "get") else None


@dataclasses.dataclass(frozen=True)
class Measured:
    """The results at a point: medians over its turns."""

    per_s: float
    mb_per_s: float
    mean_ms: float
    median_ms: float
    cpu_ms: dict[str, float]
    """Host: processor time for each request."""
    failures_count: int
    spread_percent: float
    """How far the turns' throughput is apart, of the median."""


PointKey = tuple[str, str, str, int, int]
"""Setup, method, target, size in KB, workers."""
Results = dict[PointKey, Measured]


def store_for(size_kb: int) -> str:
    """Where the proxy puts an object of that size, with a fixed threshold."""
    return EXT3 if size_kb <= THRESHOLD_KB else EXT4


def points(plan: Plan, folder: Path) -> list[Point]:
    """A run for each setup; writes the topologies and workloads that they need."""
    made = []
    for name in plan.setups:
        where, file = write_topology(SETUPS[name], folder), folder / f"{name}.xml"
        wanted = list(stages(plan, name))
        file.write_text(workload_of(name, wanted, where, plan.seconds, plan.mixed_seconds), "utf-8")
        made.append(Point(name, (str(file), "--read-timeout", "120"), where))
    return made


def stages(plan: Plan, setup: str) -> Iterator[Stage]:
    """The points of a setup, in turns."""
    if setup == "filesystems":
        yield from _turns(plan, "put", [(size_kb, (EXT3, EXT4)) for size_kb in plan.filesystem_sizes_kb], MANY)
    elif setup.endswith("saturated"):
        yield from _turns(plan, "put", [(size_kb, (store_for(size_kb), PROXY)) for size_kb in LARGER_KB], SATURATING)
    elif setup.endswith("mean"):
        yield Stage("put", PROXY, MIXED, FEW, 1)
    else:
        for workers in plan.workers:
            sizes_kb = plan.sizes_kb if workers == FEW else LARGER_KB
            yield from _turns(plan, "put", [(size_kb, (store_for(size_kb), PROXY)) for size_kb in sizes_kb], workers)
        yield from _turns(plan, "get", [(size_kb, (store_for(size_kb), PROXY)) for size_kb in LARGER_KB], FEW)
        yield from (Stage("put", target, MIXED, FEW, 1) for target in (EXT3, EXT4, PROXY))


def _turns(plan: Plan, method: str, loads: list[tuple[int, tuple[str, ...]]], workers: int) -> Iterator[Stage]:
    for size_kb, targets in loads:
        for turn in range(1, plan.turns + 1):
            yield from (Stage(method, target, size_kb, workers, turn) for target in targets)


def write_topology(setup: Setup, folder: Path) -> Path:
    """The topology of a setup; its file."""
    text = (topology.BUNDLED_DIR / "two-back-ends.toml").read_text("utf-8")
    assert text.count(_DEVICE) == 2
    text = text.replace(_DEVICE, _DEVICE.replace("hdd", setup.media)).replace("2048", str(DEVICE_MIB))
    text = text.replace(_PROXYS_DEVICE, _PROXYS_DEVICE.replace("hdd", setup.media))
    lines = text.splitlines()
    for option, value in setup.options:
        at = next(number for number, line in enumerate(lines) if line.startswith(f"{option} = "))
        lines[at] = f'{option} = "{value}"'
    where = folder / f"{setup.name}.toml"
    where.write_text("\n".join(lines) + "\n", "utf-8")
    return where


def workload_of(
    name: str,
    wanted: Sequence[Stage],
    topology_file: Path,
    seconds: int = 0,
    mixed_seconds: int = 0,
    operations_count: int = 0,
) -> str:
    """The stages as COSBench has them, in one bucket that the proxy makes in both stores; by time or by operations."""
    found = topology.load(topology_file)
    urls = {endpoint.host: f"http://{endpoint.address}:{endpoint.port}" for endpoint in found.s3_endpoints}
    parts = [_stage_xml("init", "init", 'type="init" workers="1"', "", urls[PROXY])]
    for size_kb in LARGER_KB if any(stage.method == "get" for stage in wanted) else ():
        config = f"oprefix=read-{size_kb}-;objects=r(1,{READ_COUNT});sizes=c({size_kb})KB"
        parts.append(_stage_xml(f"prepare-{size_kb}", "prepare", 'type="prepare" workers="4"', config, urls[PROXY]))
    for stage in wanted:
        limit = f'runtime="{seconds if stage.size_kb else mixed_seconds}"'
        limit = f'totalOps="{operations_count}"' if operations_count else limit
        attributes = f'name="load" workers="{stage.workers}" {limit}'
        operation, config = "write", f"oprefix={stage.name}-;objects=s(1,1000000);sizes={_sizes(stage.size_kb)}KB"
        if stage.method == "get":
            operation, config = "read", f"oprefix=read-{stage.size_kb}-;objects=u(1,{READ_COUNT})"
        parts.append(_stage_xml(stage.name, operation, attributes, config, urls[stage.target]))
    inner = "\n    ".join(parts)
    return f'<workload name="001-{name}">\n  <workflow>\n    {inner}\n  </workflow>\n</workload>\n'


def _stage_xml(name: str, operation: str, attributes: str, config: str, url: str) -> str:
    storage = f'<storage type="s3" config="endpoint={url}" />'
    config = ";".join(filter(None, ("cprefix=paper;containers=c(1)", config)))
    if "type=" in attributes:
        return f'<workstage name="{name}"><work {attributes} config="{config}">{storage}</work></workstage>'
    inner = f'{storage}<operation type="{operation}" ratio="100" config="{config}" />'
    return f'<workstage name="{name}"><work {attributes}>{inner}</work></workstage>'


def _sizes(size_kb: int) -> str:
    if size_kb != MIXED:
        return f"c({size_kb})"
    return f"h({','.join(f'{size}|{size}|1' for size in MIXED_KB)})"


def collect_results(plan: Plan, runs: Mapping[str, Run]) -> Results:
    """The results of all finished runs."""
    turns: dict[PointKey, list[Measured]] = {}
    for setup in plan.setups:
        run = runs.get(setup)
        for info in run.info.stages if run is not None else ():
            stage = Stage.of(info.name)
            keys = [key for key in run.tally.figures if key.stage == info.name] if run is not None and stage else []
            if run is not None and stage is not None and keys:
                key = setup, stage.method, stage.target, stage.size_kb, stage.workers
                turns.setdefault(key, []).append(_summarise_stage(run, info.name))
    return {key: median_of(found) for key, found in turns.items()}


def _summarise_stage(run: Run, name: str) -> Measured:
    key = next(key for key in run.tally.figures if key.stage == name)
    figures = run.tally.figures[key]
    elapsed_s = run.info.elapsed_s(key, figures)
    per_s = figures.successes_count / elapsed_s
    use = mean_use(run, name)
    return Measured(
        per_s,
        figures.bytes / elapsed_s / 1e6,
        in_ms(figures.response.mean_ns),
        in_ms(figures.response.percentile_ns(50.0)),
        {host: 10 * use[host, "cpu_percent"] / per_s for host in HOSTS if (host, "cpu_percent") in use and per_s},
        figures.failures_count,
        0.0,
    )


def median_of(turns: list[Measured]) -> Measured:
    """The median of each figure."""

    def of(values: Iterator[float]) -> float:
        return statistics.median(values)

    per_s = of(each.per_s for each in turns)
    spread = max(each.per_s for each in turns) - min(each.per_s for each in turns)
    hosts = [host for host in HOSTS if all(host in each.cpu_ms for each in turns)]
    return Measured(
        per_s,
        of(each.mb_per_s for each in turns),
        of(each.mean_ms for each in turns),
        of(each.median_ms for each in turns),
        {host: of(each.cpu_ms[host] for each in turns) for host in hosts},
        sum(each.failures_count for each in turns),
        100 * spread / per_s if per_s else 0.0,
    )
