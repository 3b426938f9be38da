"""Which driver does what of a stage."""

from collections.abc import Sequence

from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.model import Kind, Stage
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
