"""Document 000: uploads of 2,048 objects of 1 B, 1 KB and 1 MB with 1 to 2,048 at once, on a hard disk and on an SSD.

The machines are those of its table 1 as the bundled topology `paper` has them: client, proxy, one storage node with one
device. The device is a model (`servers/disks/medium.py`); CPU is that of this machine, shared by all hosts. So
heights of curves differ from the paper's; what is held against it is their shape, which it states in words.

A point ends when its objects are there, or after a time: one upload at a time, a disk needs minutes for 2,048 of them,
and after ten seconds its throughput is known. Where many are at once, retries and failures come late (ten retries of
requests that time out after 10 s), so there all 2,048 are waited for, up to one and a half minutes. With that all 72
points take about half an hour.

Source: 早川, 山口: オブジェクトストレージの性能の解析に関する一考察 (figures 3 to 14, §5, §7).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from storage_cluster import topology
from storage_cluster.bench.paper.points import Point
from storage_cluster.bench.paper.stage_use import Use, mean_use
from storage_cluster.bench.results.folder import Run
from storage_cluster.servers.disks.medium import PROFILES

SIZES = {"1B": 1, "1KB": 1000, "1MB": 1_000_000}
MEDIA = ("hdd", "ssd")
CONCURRENCY = tuple(2**n for n in range(12))
OBJECTS_COUNT = 2048
SECONDS, MANY, MANY_TIMES = 10.0, 128, 9
"""Longest time of a point; from so many at once on, so many times that."""
QUICK_CONCURRENCY = (1, 8, 32, 128)
QUICK_OBJECTS_COUNT = 128
QUICK_SECONDS = 3.0
RETRIES_MAX = 10
HOSTS = ("client", "proxy", "storage")
ROUNDS = 1
SETUPS = ("paper", "paper-2016")
"""Topologies: the machines as hosts of this one; and as they were, with their processors, disks and queues."""
_MEDIUM = {
    "paper": ('{ name = "d1", weight = 1.0 }', '{{ name = "d1", weight = 1.0, media = "{}" }}'),
    "paper-2016": ('media = "ssd-2016"', 'media = "{}-2016"'),
}
"""Where a topology's text names its device, and that with a medium."""
_SSBENCH_CONNECTIONS = ("--connects", "2", "--connections", "1024")
"""Of the version whose `worker.py` we read: a connection of the pool is tried twice; unless it runs as root it allows
itself 1,024 open files, which is Ubuntu's limit, too."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The part of the sweep to run."""

    media: tuple[str, ...] = MEDIA
    sizes: tuple[str, ...] = tuple(SIZES)
    concurrency: tuple[int, ...] = CONCURRENCY
    objects_count: int = OBJECTS_COUNT
    seconds: float = SECONDS  # 0: no limit, as in the paper
    setup: str = SETUPS[0]
    rounds: int = ROUNDS

    def longest_s(self, concurrency: int) -> float:
        """The longest time of a point."""
        return self.seconds * (MANY_TIMES if self.waits_for_all(concurrency) else 1)

    def waits_for_all(self, concurrency: int) -> bool:
        """Whether a point is meant to end with the last object, rather than once its throughput is known."""
        return not self.seconds or concurrency >= MANY


QUICK = Plan(concurrency=QUICK_CONCURRENCY, objects_count=QUICK_OBJECTS_COUNT, seconds=QUICK_SECONDS)


@dataclasses.dataclass(frozen=True)
class Found:
    """The results at a point; counts cover the time of measurement."""

    concurrency: int
    throughput_per_s: float
    failures_count: int
    retries_count: int
    errors: dict[str, int]
    cpu_percent: dict[str, float]  # host: of one core
    io_percent: dict[str, float]  # host: of the time its device was busy
    cpu_wait_percent: dict[str, float]  # host, if known: of the time somebody there had no processor
    turned_away: dict[str, float]  # host: connections that its full listen queues dropped
    objects_count: int = 0
    elapsed_s: float = 0.0
    unfinished_count: int = 0  # neither there nor failed when the time was over, though all were waited for
    rounds_per_s: tuple[float, ...] = ()  # throughput of each round; the others' figures are not kept
    is_modelled: bool = False  # CPU is that of the modelled machine, of all its cores; else of one core of this one


Series = dict[tuple[str, str], list[Found]]
"""(medium, size) to its points, by concurrency."""


def points(plan: Plan, folder: Path) -> list[Point]:
    """The sweep's points, round by round; writes the topologies that they need."""
    where = {media: _topology(plan.setup, media, folder) for media in plan.media}
    return [
        Point(name(media, size, concurrency, number), _argv(plan, size, concurrency), where[media])
        for number in range(1, plan.rounds + 1)
        for media in plan.media
        for size in plan.sizes
        for concurrency in plan.concurrency
    ]


def _argv(plan: Plan, size: str, concurrency: int) -> tuple[str, ...]:
    return (
        *("put", "--count", str(plan.objects_count), "--size", str(SIZES[size])),
        *("--concurrency", str(concurrency), "--retries", str(RETRIES_MAX), "--read-timeout", "20"),
        *("--container", f"{size}-{concurrency}", "--seconds", f"{plan.longest_s(concurrency):g}"),
        *(_SSBENCH_CONNECTIONS if plan.setup == "paper-2016" else ()),
    )


def name(media: str, size: str, concurrency: int, number: int = 1) -> str:
    """A point's folder, in a round; that of the first has no number."""
    return f"{media}-{size}-{concurrency:04d}" + (f"-round-{number}" if number > 1 else "")


def collect_results(plan: Plan, runs: Mapping[str, Run]) -> Series:
    """The results of all finished points: of each the round whose throughput is the median."""
    found: Series = {}
    cores = {host.name: host.processor.cores for host in topology.load(topology.find(plan.setup)).hosts}
    for media in plan.media:
        for size in plan.sizes:
            rounds = (
                [
                    _summarise_run(plan, c, runs[each], cores)
                    for each in (name(media, size, c, number) for number in range(1, plan.rounds + 1))
                    if each in runs
                ]
                for c in plan.concurrency
            )
            found[media, size] = [_median(each) for each in rounds if each]
    return {key: series for key, series in found.items() if series}


def _median(rounds: Sequence[Found]) -> Found:
    """The round with the median throughput (of two the lower), and the throughput of all."""
    by_throughput = sorted(rounds, key=lambda found: found.throughput_per_s)
    rates = tuple(found.throughput_per_s for found in rounds)
    return dataclasses.replace(by_throughput[(len(rounds) - 1) // 2], rounds_per_s=rates)


def _summarise_run(plan: Plan, concurrency: int, run: Run, cores: Mapping[str, int]) -> Found:
    keys = [key for key in run.tally.figures if key.stage == "put"]
    total = run.tally.total(keys)
    use = mean_use(run, "put")
    elapsed_s = run.info.elapsed_s(keys[0], total)
    return Found(
        concurrency,
        total.successes_count / elapsed_s,
        total.failures_count,
        total.retries_count,
        total.errors,
        {host: _cpu_percent(use, host, cores.get(host, 0)) for host in HOSTS},
        {host: _io_percent(use, host) for host in HOSTS},
        {host: use[host, "cpu_wait_percent"] for host in HOSTS if (host, "cpu_wait_percent") in use},
        {host: use.get((host, "listen_drops_per_s"), 0.0) * elapsed_s for host in HOSTS},
        total.successes_count,
        elapsed_s,
        unfinished_count=_count_unfinished(plan, concurrency, total.successes_count + total.failures_count),
        is_modelled=any(cores.values()),
    )


def _count_unfinished(plan: Plan, concurrency: int, ended_count: int) -> int:
    """Of the objects of a point that waits for all: how many had no end when its time was over."""
    return plan.objects_count - ended_count if plan.waits_for_all(concurrency) else 0


def _cpu_percent(use: Use, host: str, cores: int) -> float:
    """Of all cores of a modelled machine, what its requests took and else what was measured; or of one core here."""
    measured = use.get((host, "cpu_percent"), 0.0) / max(cores, 1)
    return use.get((host, "processor_busy_percent"), 0.0) or measured


def _io_percent(use: Use, host: str) -> float:
    """How long its disk was busy: the modelled one, or one that would read and write what the host did, in sequence."""
    modelled = [value for (where, metric), value in use.items() if where == host and "disk_busy" in metric]
    moved = sum(use.get((host, metric), 0.0) for metric in ("read_bytes_per_s", "written_bytes_per_s"))
    return max(modelled, default=100 * moved / PROFILES["hdd"].write_bytes_per_s)


def pictures(plan: Plan, folder: Path) -> dict[str, Path]:
    """Figures 15 and 16 to the topologies of their traces, which it writes.

    With the machines as they were figure 15 is made with each disk, and with uploads that are synced and that are not.
    """
    first = _topology(plan.setup, plan.media[0], folder)
    if plan.setup == SETUPS[0]:
        return {"figure-15": first, "figure-16": first}
    made = {
        f"figure-15-{media}{ending}": _topology(plan.setup, media, folder, ending)
        for media in reversed(plan.media)
        for ending in ("", "-unsynced")
    }
    return made | {"figure-16": first}


def _topology(setup: str, media: str, folder: Path, ending: str = "") -> Path:
    text = (topology.BUNDLED_DIR / f"{setup}.toml").read_text("utf-8")
    plain, with_medium = _MEDIUM[setup]
    assert plain in text
    where = folder / f"{media}{ending}.toml"
    written = with_medium.format(media) + ("\nsynced = false" if ending else "")
    where.write_text(text.replace(plain, written), "utf-8")
    return where


def peak(series: Sequence[Found]) -> Found:
    """The point of the highest throughput."""
    return max(series, key=lambda found: found.throughput_per_s)
