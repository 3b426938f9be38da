"""Document 000: uploads of 2,048 objects of 1 B, 1 KB and 1 MB with 1 to 2,048 at once, on a hard disk and on an SSD.

The machines are those of its table 1 as the bundled topology `paper` has them: client, proxy, one storage node with one
device. The device is a model (`servers/disks/medium.py`); CPU is that of this machine, shared by all hosts. So
heights of curves differ from the paper's; what is held against it is their shape, which it states in words.

A point ends when its objects are there, or after a time: one upload at a time, a disk needs minutes for 2,048 of them,
and after ten seconds its throughput is known. Where many are at once, retries and failures come late (ten retries of
requests that time out after 10 s), so there all 2,048 are waited for, up to two and a half minutes. With that all 72
points take about half an hour.

Source: 早川, 山口: オブジェクトストレージの性能の解析に関する一考察 (figures 3 to 14, §5, §7).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from storage_cluster import topology
from storage_cluster.bench.paper.points import Point
from storage_cluster.bench.paper.stage_use import mean_use
from storage_cluster.bench.results.folder import Run

SIZES = {"1B": 1, "1KB": 1000, "1MB": 1_000_000}
MEDIA = ("hdd", "ssd")
CONCURRENCY = tuple(2**n for n in range(12))
OBJECTS_COUNT = 2048
SECONDS, MANY, MANY_TIMES = 10.0, 128, 15
"""Longest time of a point; from so many at once on, so many times that."""
QUICK_CONCURRENCY = (1, 8, 32, 128)
QUICK_OBJECTS_COUNT = 128
QUICK_SECONDS = 3.0
RETRIES_MAX = 10
HOSTS = ("client", "proxy", "storage")
_DEVICE = 'devices = [{ name = "d1", weight = 1.0 }]'


@dataclasses.dataclass(frozen=True)
class Plan:
    """The part of the sweep to run."""

    media: tuple[str, ...] = MEDIA
    sizes: tuple[str, ...] = tuple(SIZES)
    concurrency: tuple[int, ...] = CONCURRENCY
    objects_count: int = OBJECTS_COUNT
    seconds: float = SECONDS  # 0: no limit, as in the paper

    def longest_s(self, concurrency: int) -> float:
        """The longest time of a point."""
        return self.seconds * (MANY_TIMES if concurrency >= MANY else 1)


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
    unfinished_count: int = 0  # neither there nor failed when the time was over, and retries had been needed


Series = dict[tuple[str, str], list[Found]]
"""(medium, size) to its points, by concurrency."""


def points(plan: Plan, folder: Path) -> list[Point]:
    """The sweep's points; writes the topologies that they need."""
    made = []
    for media in plan.media:
        where = _topology(media, folder)
        for size in plan.sizes:
            for concurrency in plan.concurrency:
                argv = (
                    *("put", "--count", str(plan.objects_count), "--size", str(SIZES[size])),
                    *("--concurrency", str(concurrency), "--retries", str(RETRIES_MAX), "--read-timeout", "20"),
                    *("--container", f"{size}-{concurrency}", "--seconds", f"{plan.longest_s(concurrency):g}"),
                )
                made.append(Point(name(media, size, concurrency), argv, where))
    return made


def name(media: str, size: str, concurrency: int) -> str:
    """A point's folder."""
    return f"{media}-{size}-{concurrency:04d}"


def collect_results(plan: Plan, runs: Mapping[str, Run]) -> Series:
    """The results of all finished points."""
    found: Series = {}
    for media in plan.media:
        for size in plan.sizes:
            done = ((c, runs.get(name(media, size, c))) for c in plan.concurrency)
            found[media, size] = [_summarise_run(c, run, plan.objects_count) for c, run in done if run is not None]
    return {key: series for key, series in found.items() if series}


def _summarise_run(concurrency: int, run: Run, wanted_count: int) -> Found:
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
        {host: use.get((host, "cpu_percent"), 0.0) for host in HOSTS},
        {host: max((v for (h, m), v in use.items() if h == host and "disk_busy" in m), default=0.0) for host in HOSTS},
        {host: use[host, "cpu_wait_percent"] for host in HOSTS if (host, "cpu_wait_percent") in use},
        {host: use.get((host, "listen_drops_per_s"), 0.0) * elapsed_s for host in HOSTS},
        total.successes_count,
        elapsed_s,
        wanted_count - total.successes_count - total.failures_count if total.retries_count else 0,
    )


def _topology(media: str, folder: Path) -> Path:
    text = (topology.BUNDLED_DIR / "paper.toml").read_text("utf-8")
    assert _DEVICE in text
    where = folder / f"{media}.toml"
    where.write_text(text.replace(_DEVICE, _DEVICE.replace("1.0 }", f'1.0, media = "{media}" }}')), "utf-8")
    return where


def peak(series: Sequence[Found]) -> Found:
    """The point of the highest throughput."""
    return max(series, key=lambda found: found.throughput_per_s)
