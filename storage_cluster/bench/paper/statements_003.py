"""Compares the statements of document 003, sentence by sentence, with the measurements.

The document's figures are pictures; what its sentences say of them is all that can be held against ours. Heights are
those of another machine: what is compared is ratios, and where a curve rises, is level or falls. Where ours differs,
the reason is what was full meanwhile: a device, the machine's processor, or a host's share of it.
"""

import itertools
import os
from collections.abc import Callable, Iterator

from storage_cluster.bench.paper.experiment_003 import (
    BALANCED,
    CPU_SHARE,
    FEW,
    GET_SIZES,
    GET_WORKERS,
    HDD_READ_BYTES_PER_S,
    MANY,
    MB,
    PUT_SIZES,
    PUT_WORKERS,
    REPLICAS,
    SETUPS,
    SIZES,
    Curve,
    Curves,
    Measured,
    prepared_count,
)
from storage_cluster.bench.paper.statements import Statement

SAME_SHARE = 0.8
"""The smaller of two throughputs that count as the same, at least this share of the larger.

At nine points in ten the two passes were less than a fifth apart."""
BEST_SHARE = 0.9
"""Of a curve's best: as good, as in document 000's statements."""
LEVEL_SHARE = 0.8
"""Of a curve's best: still level."""
BUSY_PERCENT = 85.0
FULL_SHARE = 0.85
WAIT_PERCENT = 15.0
MIB = 1024**2
_SATURATED_FROM, _BEST_NEAR = 8, 16
_GET_RISE = 3.5
_LOSS_SHARE_MAX = 0.65
_SMALL_BYTES = 10 * MB
_OVERTAKES_BYTES = 100 * MB
_PUT_RATIO = (3.0, 5.0)
_PUT_SATURATED_FROM = 4
_GAIN = 1.3


def statements(curves: Curves) -> list[Statement]:
    """All of them, in the document's order."""
    return [each for build in _STATEMENTS for each in build(curves)]


def _same_media(curves: Curves) -> Iterator[Statement]:
    hdd, ssd = _curve(curves, GET_WORKERS, "hdd"), _curve(curves, GET_WORKERS, "ssd")
    pairs = _pairs(hdd, ssd)
    if not pairs:
        return
    worst = min(min(a.mb_per_s, b.mb_per_s) / max(a.mb_per_s, b.mb_per_s) for a, b in pairs)
    text = f"{_row(hdd)} (HDD); {_row(ssd)} (SSD); disks at most {_most_busy(hdd + ssd):.0f} % busy: read from memory"
    if cold := _curve(curves, GET_WORKERS, "hdd-cold"):
        text += f". Without a page cache the disks give {_row(cold)}, at most {_most_busy(cold):.0f} % busy"
    said = "GET of 1 MB, by workers: no difference between HDD and SSD"
    yield Statement(said, text, worst >= SAME_SHARE, "" if worst >= SAME_SHARE else _limits(hdd, ssd))


def _get_levels(curves: Curves) -> Iterator[Statement]:
    ssd = _curve(curves, GET_WORKERS, "ssd")
    if not ssd:
        return
    best = _best(ssd)
    one, late = ssd[0], [each for each in ssd if each.workers >= _SATURATED_FROM]
    rise = best.mb_per_s / one.mb_per_s
    said = "GET: many workers read 3.5 to 4 times as much as one (about 600 and 150–170 MB/s)"
    text = f"{one.mb_per_s:.0f} MB/s with 1, {best.mb_per_s:.0f} with {best.workers} ({rise:.1f} times)"
    if bodies := _curve(curves, GET_WORKERS, "ssd-bodies"):
        text += f"; {bodies[0].mb_per_s:.0f} and {_best(bodies).mb_per_s:.0f} if the gateway has the bodies itself"
    why = f"one worker already keeps {sum(one.cpu_percent.values()):.0f} % of a core busy; {_limits(ssd)}"
    agrees = rise >= _GET_RISE * SAME_SHARE
    yield Statement(said, text, agrees, "" if agrees else why)
    level = min((each.mb_per_s for each in late), default=0.0) / best.mb_per_s
    said = "GET: level from 8 workers on, and not more up to 128"
    agrees = level >= LEVEL_SHARE
    reached = ssd[-1].workers >= 128
    yield Statement(said, f"at least {level:.0%} of the best", agrees if reached else None)
    said = "GET: best near 16 workers"
    level_from = next(each.workers for each in ssd if each.mb_per_s >= BEST_SHARE * best.mb_per_s)
    text = f"best at {best.workers}; within 10 % of it from {level_from} on"
    yield Statement(said, text, level_from <= _BEST_NEAR <= 2 * best.workers)


def _gateway_cache(curves: Curves) -> Iterator[Statement]:
    losses = {}
    for workers in (FEW, MANY):
        on, off = _curve(curves, GET_SIZES, "ssd", workers), _curve(curves, GET_SIZES, "ssd-no-cache", workers)
        for with_cache, without in _pairs(on, off):
            losses[workers, with_cache.size] = 1 - without.mb_per_s / with_cache.mb_per_s
    if not losses:
        return
    text = "; ".join(
        f"{workers} worker{'s' * (workers > 1)}: "
        + ", ".join(f"{size} {-loss:+.0%}" for (at, size), loss in losses.items() if at == workers)
        for workers in (FEW, MANY)
    )
    small = [loss for (_, size), loss in losses.items() if SIZES[size] < _SMALL_BYTES]
    large = [loss for (_, size), loss in losses.items() if SIZES[size] >= _SMALL_BYTES]
    said = "GET without the gateway's cache: up to 65 % less below 10 MB, hardly less from 10 MB on"
    agrees = max(small) > 1 - SAME_SHARE and (not large or max(large) <= 1 - SAME_SHARE + 0.05)
    why = (
        "without it each GET asks storage servers five times more before the object (index, account, container: seven "
        "spans in a trace instead of two), which is some 6 ms more of mostly processor time"
    )
    yield Statement(said, text, agrees, "" if agrees else why)


def _gateway_limits(curves: Curves) -> Iterator[Statement]:
    one, two = _curve(curves, f"{BALANCED}-get", "equal-1"), _curve(curves, f"{BALANCED}-get", "equal-2")
    if not (one and two):
        return
    best = _best(one)
    share = _gateway_cpu(best) / (100 * CPU_SHARE)
    others = max(value for host, value in best.cpu_percent.items() if host.startswith("storage")) / (100 * CPU_SHARE)
    said = "GET: the gateway is the limit, not the storage"
    text = (
        f"on hosts of equal processors ({CPU_SHARE:.0%} of a core each) the gateway's is {share:.0%} used, the busiest "
        f"storage host's {others:.0%}: {best.mb_per_s:.0f} MB/s; with a second gateway {_best(two).mb_per_s:.0f}"
    )
    ours = {name: _curve(curves, GET_WORKERS, name) for name in ("ssd", "ssd-processes", "ssd-bodies")}
    if all(ours.values()):
        ssd, processes, bodies = (f"{_best(curve).mb_per_s:.0f}" for curve in ours.values())
        text += (
            f". Where all hosts share this machine: {ssd} MB/s, {processes} with two processes on the gateway's host, "
        )
        text += f"{bodies} if the gateway has the bodies itself"
    yield Statement(said, text, share >= FULL_SHARE and _best(two).mb_per_s > _GAIN * best.mb_per_s)


def _rise_with_size(method: str, sweep: str) -> Callable[[Curves], Iterator[Statement]]:
    def build(curves: Curves) -> Iterator[Statement]:
        found = {name: _curve(curves, sweep, name, FEW) for name in ("hdd", "ssd")}
        found = {name: curve for name, curve in found.items() if curve}
        if not found:
            return
        text = "; ".join(f"{_row(curve)} ({name.upper()})" for name, curve in found.items())
        falls = [
            (name, after)
            for name, curve in found.items()
            for before, after in itertools.pairwise(curve)
            if after.mb_per_s < SAME_SHARE * before.mb_per_s
        ]
        said = f"{method} with 1 worker: the larger the objects, the higher the throughput"
        yield Statement(said, text, not falls, "; ".join(_why_less(method, name, point) for name, point in falls))

    return build


def _why_less(method: str, name: str, point: Measured) -> str:
    together = SIZES[point.size] * prepared_count(point.size)
    room = SETUPS[name].cache_mib * MIB
    missed = f": {together / 1e9:.1f} GB of objects, a page cache of {room / 1e9:.1f}" if together > room else ""
    return f"{name.upper()} at {point.size}{missed if method == 'GET' else ''}; {_limit(point)}"


def _hdd_overtakes(curves: Curves) -> Iterator[Statement]:
    hdd, ssd = _curve(curves, GET_SIZES, "hdd", FEW), _curve(curves, GET_SIZES, "ssd", FEW)
    ratios = {a.size: a.mb_per_s / b.mb_per_s for a, b in _pairs(hdd, ssd)}
    if not ratios:
        return
    text = "HDD of SSD: " + ", ".join(f"{size} {ratio:.0%}" for size, ratio in ratios.items())
    cold = _curve(curves, GET_SIZES, "hdd-cold", FEW), _curve(curves, GET_SIZES, "ssd-cold", FEW)
    if all(cold):
        parts = (f"{a.size} {a.mb_per_s / b.mb_per_s:.0%}" for a, b in _pairs(*cold))
        text += "; without page caches: " + ", ".join(parts)
    large = [ratio for size, ratio in ratios.items() if SIZES[size] >= _OVERTAKES_BYTES]
    small = [ratio for size, ratio in ratios.items() if SIZES[size] < _OVERTAKES_BYTES]
    said = "GET with 1 worker: SSD is faster below 100 MB, HDD from 100 MB on"
    agrees = min(large, default=0.0) > 1 and max(small) <= 1 / SAME_SHARE
    why = "" if agrees else "nothing in this model makes an SSD the slower one: see the second answer"
    yield Statement(said, text, agrees if large else None, why)


def _sizes_at_many(curves: Curves) -> Iterator[Statement]:
    if ssd := _curve(curves, GET_SIZES, "ssd", MANY):
        best = _best(ssd)
        at_1mb = next((each for each in ssd if each.size == "1MB"), best)
        said = "GET with 16 workers, SSD: most at 1 MB (600 MB/s), not more at 10 and 100 MB"
        agrees = at_1mb.mb_per_s >= SAME_SHARE * best.mb_per_s
        yield Statement(said, _row(ssd), agrees, "" if agrees else f"most at {best.size}; {_limits(ssd)}")
    if hdd := _curve(curves, GET_SIZES, "hdd", MANY):
        top = next((each for each in hdd if each.size == "1MB"), _best(hdd))
        last = hdd[-1]
        text = f"{_row(hdd)}; disks {last.disk_busy_percent:.0f} % busy at {last.size}"
        if cold := _curve(curves, GET_SIZES, "hdd-cold", MANY):
            text += f"; without a page cache {_row(cold)}"
        said = "GET with 16 workers, HDD: most at 1 MB, much less above"
        agrees = last.mb_per_s < LEVEL_SHARE * top.mb_per_s
        reached = SIZES[last.size] >= _OVERTAKES_BYTES
        yield Statement(said, text, agrees if reached else None, "" if agrees else _limits(hdd))


def _put_ratio(curves: Curves) -> Iterator[Statement]:
    hdd, ssd = _curve(curves, PUT_WORKERS, "hdd"), _curve(curves, PUT_WORKERS, "ssd")
    ratios = [b.mb_per_s / a.mb_per_s for a, b in _pairs(hdd, ssd)]
    if not ratios:
        return
    least, most = _PUT_RATIO
    said = "PUT of 1 MB, by workers: SSD is 3 to 5 times as fast as HDD"
    text = f"{min(ratios):.1f} to {max(ratios):.1f} times: {_row(hdd)} (HDD); {_row(ssd)} (SSD)"
    agrees = least * SAME_SHARE <= min(ratios) and max(ratios) <= most / SAME_SHARE
    yield Statement(said, text, agrees, "" if agrees else _limits(hdd, ssd))
    said = "PUT, HDD: more workers, slightly more throughput"
    rise = _best(hdd).mb_per_s / hdd[0].mb_per_s
    yield Statement(said, f"{rise:.1f} times from 1 to {_best(hdd).workers}", rise > 1.05, _limits(hdd))


def _put_levels(curves: Curves) -> Iterator[Statement]:
    ssd = _curve(curves, PUT_WORKERS, "ssd")
    if not ssd:
        return
    one, best = ssd[0], _best(ssd)
    four = next((each for each in ssd if each.workers >= _PUT_SATURATED_FROM), best)
    rise = four.mb_per_s / one.mb_per_s
    said = "PUT, SSD: more than twice as fast with 4 workers as with 1, then level (70 MB/s)"
    text = f"{one.mb_per_s:.0f} MB/s with 1, {rise:.1f} times that with {four.workers}, at most {best.mb_per_s:.0f}"
    level = best.mb_per_s <= four.mb_per_s / LEVEL_SHARE
    yield Statement(said, text, rise > 2 and level, _limits(ssd))
    said = "PUT, SSD: level from 4 workers on since three storage nodes write no more than three objects at once"
    text = f"devices are at most {_most_busy(ssd):.0f} % busy, and each object is written to all {REPLICAS}"
    yield Statement(said, text, _most_busy(ssd) >= BUSY_PERCENT, _limits(ssd))


def _put_sizes_at_many(curves: Curves) -> Iterator[Statement]:
    for name, least, said in (
        ("hdd", "10MB", "PUT with 16 workers, HDD: low up to 1 MB, high alike at 10 and 100 MB"),
        ("ssd", "1MB", "PUT with 16 workers, SSD: 1 MB is as fast as 10 and 100 MB"),
    ):
        curve = _curve(curves, PUT_SIZES, name, MANY)
        if not curve:
            continue
        high = [each for each in curve if SIZES[each.size] >= SIZES[least]]
        low = [each for each in curve if SIZES[each.size] < SIZES[least]]
        best = _best(curve).mb_per_s
        reached = len(high) > 1
        agrees = all(each.mb_per_s >= LEVEL_SHARE * best for each in high) and low[-1].mb_per_s < LEVEL_SHARE * best
        yield Statement(said, _row(curve), agrees if reached else None, "" if agrees else _limits(curve))


def _several_gateways(curves: Curves) -> Iterator[Statement]:
    parts, gains = [], []
    for method in ("get", "put"):
        found = {n: _curve(curves, f"{BALANCED}-{method}", f"equal-{n}") for n in (1, 2, 3)}
        found = {n: curve for n, curve in found.items() if curve}
        if len(found) < 2:
            return
        parts.append(f"{method.upper()} {', '.join(f'{_best(curve).mb_per_s:.0f}' for curve in found.values())} MB/s")
        gains.append(_best(found[2]).mb_per_s / _best(found[1]).mb_per_s)
        limit = _best(list(found.values())[-1])
    said = "proposal: several gateways behind a balancer could make writing faster"
    storage = max(value for host, value in limit.cpu_percent.items() if host.startswith("storage")) / CPU_SHARE
    text = f"with {', '.join(map(str, found))} gateways: {'; '.join(parts)}"
    agrees = gains[1] > 1 / SAME_SHARE
    why = "" if agrees else f"a PUT's limit are the storage hosts, whose processors are {storage:.0f} % used"
    yield Statement(said, text, agrees, why)


_STATEMENTS: tuple[Callable[[Curves], Iterator[Statement]], ...] = (
    _same_media,
    _get_levels,
    _gateway_cache,
    _gateway_limits,
    _rise_with_size("GET", GET_SIZES),
    _hdd_overtakes,
    _sizes_at_many,
    _put_ratio,
    _put_levels,
    _rise_with_size("PUT", PUT_SIZES),
    _put_sizes_at_many,
    _several_gateways,
)


def disks_at_most_mb_per_s() -> float:
    """The most that the document's three hard disks can read: less than its HDD curve shows."""
    return REPLICAS * HDD_READ_BYTES_PER_S / MB


def _curve(curves: Curves, sweep: str, setup: str, workers: int = 0) -> Curve:
    return curves.get((sweep, setup, workers), [])


def _pairs(one: Curve, other: Curve) -> list[tuple[Measured, Measured]]:
    """The points that both curves have: a run that failed half way lacks some."""
    return [(a, b) for a in one for b in other if (a.workers, a.size) == (b.workers, b.size)]


def _best(curve: Curve) -> Measured:
    return max(curve, key=lambda each: each.mb_per_s)


def _most_busy(curve: Curve) -> float:
    return max(each.disk_busy_percent for each in curve)


def _gateway_cpu(measured: Measured) -> float:
    return max(value for host, value in measured.cpu_percent.items() if host.startswith("gateway"))


def _row(curve: Curve) -> str:
    """A curve in MB/s."""
    return ", ".join(f"{each.mb_per_s:.0f}" if each.mb_per_s >= 10 else f"{each.mb_per_s:.1f}" for each in curve)


def _limits(*curves: Curve) -> str:
    """What is full at the best points."""
    return "; ".join(dict.fromkeys(f"at {_at(_best(curve))} {_limit(_best(curve))}" for curve in curves))


def _at(measured: Measured) -> str:
    return f"{measured.workers} × {measured.size}"


def _limit(measured: Measured) -> str:
    cpu, most = sum(measured.cpu_percent.values()), 100 * (os.cpu_count() or 1)
    if measured.disk_busy_percent >= BUSY_PERCENT:
        return f"the disks are full ({measured.disk_busy_percent:.0f} %)"
    if cpu >= FULL_SHARE * most:
        return (
            f"the machine's processor, which all hosts share, is full ({cpu:.0f} of {most} %, the gateway "
            f"{_gateway_cpu(measured):.0f}); disks {measured.disk_busy_percent:.0f} %"
        )
    why = f"neither disks ({measured.disk_busy_percent:.0f} %) nor processor ({cpu:.0f} of {most} %) are full"
    wait = max(measured.cpu_wait_percent.values(), default=0.0)
    if measured.workers == FEW:
        return f"{why}: with one worker each step waits for the one before"
    if wait >= WAIT_PERCENT:
        return f"{why}; other work of the machine had the rest: processes waited for a processor up to {wait:.0f} %"
    return why
