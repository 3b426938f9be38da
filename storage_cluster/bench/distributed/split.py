"""Divides a stage among drivers, and reassigns the remaining work of a lost driver.

A work with a run time continues with as many workers as it had, for the time that is left. A work that counts
operations or bytes continues until they are done. A work over a range (prepare, cleanup, …) repeats the lost driver's
part of the range, because it is unknown how far that driver had come; doing it twice has the same result. A work that
names its driver belongs to that driver, and no other takes it over.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.model import Kind, Stage, Work
from storage_cluster.bench.run.work import Share


def split(stage: Stage, drivers: Sequence[str]) -> dict[str, dict[str, Share]]:
    """Driver to its share of each work: workers are dealt out evenly; a work that names a driver is all its own.

    Raises: WorkloadError if a work names a driver that is not there.
    """
    shares: dict[str, dict[str, Share]] = {driver: {} for driver in drivers}
    for work in stage.works:
        if work.kind is Kind.DELAY:
            continue
        if work.driver and work.driver not in shares:
            raise WorkloadError(
                f"work {work.name} is for driver {work.driver}, which is not there",
                f"the drivers are: {', '.join(drivers) or 'none'}",
            )
        doing = [work.driver] if work.driver else drivers
        total = work.workers_max
        for number, driver in enumerate(doing):
            first, end = total * number // len(doing), total * (number + 1) // len(doing)
            if end > first:
                shares[driver][work.name] = Share(first, end - first, total)
    return shares


def left_by(
    stage: Stage, shares: Mapping[str, Sequence[Share]], done: Mapping[str, tuple[int, int]], elapsed_s: float
) -> dict[str, list[Share]]:
    """The remainder of a lost driver's shares, by work.

    Arguments: `done`, operations and bytes of each work that it has reported; `elapsed_s`, since the stage began.
    """
    works = {work.name: work for work in stage.works}
    found: dict[str, list[Share]] = {}
    for name, had in shares.items():
        work = works[name]
        if work.driver:
            continue
        ops, moved = done.get(name, (0, 0))
        for share in had:
            done_ops, done_bytes = min(ops, share.ops(work)), min(moved, share.bytes(work))
            ops, moved = ops - done_ops, moved - done_bytes
            rest = dataclasses.replace(
                share,
                ops_left=share.ops(work) - done_ops,
                bytes_left=share.bytes(work) - done_bytes,
                elapsed_s=0.0 if work.is_scan else elapsed_s,
            )
            if _has_more(work, rest):
                found.setdefault(name, []).append(rest)
    return found


def deal_out(left: Mapping[str, Sequence[Share]], drivers: Sequence[str]) -> list[dict[str, dict[str, Share]]]:
    """Rounds of driver to share of each work: the workers of each share that is left, dealt out evenly."""
    rounds: list[dict[str, dict[str, Share]]] = []
    for work, shares in left.items():
        for number, share in enumerate(shares):
            if number == len(rounds):
                rounds.append({driver: {} for driver in drivers})
            for driver, part in zip(drivers, _parts(share, len(drivers)), strict=True):
                if part.count:
                    rounds[number][driver][work] = part
    return rounds


def _has_more(work: Work, share: Share) -> bool:
    if work.is_scan:
        return True
    if work.schedule:
        return False  # what was due meanwhile is over, and whose the rest was is not known
    exhausted = (work.total_ops and not share.ops_left) or (work.total_bytes and not share.bytes_left)
    over = work.runtime_s and share.elapsed_s >= work.rampup_s + work.runtime_s + work.rampdown_s
    return not (exhausted or over)


def _parts(share: Share, count: int) -> list[Share]:
    """A share in parts that add up to it; a part without a worker is empty."""
    ends = [share.count * number // count for number in range(count + 1)]
    ops, moved = share.ops_left or 0, share.bytes_left or 0
    return [
        dataclasses.replace(
            share,
            first=share.first + begin,
            count=end - begin,
            ops_left=ops * end // share.count - ops * begin // share.count,
            bytes_left=moved * end // share.count - moved * begin // share.count,
        )
        for begin, end in itertools.pairwise(ends)
    ]
