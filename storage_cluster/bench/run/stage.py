"""Stages one after the other, works of a stage side by side, and whether so many failures are acceptable."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping

from storage_cluster.bench.engine.connection import Timeouts
from storage_cluster.bench.engine.limits import CONNECTIONS_MAX, Allowance, allow_connections
from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.model import AuthConfig, Kind, Stage, StorageConfig, Work
from storage_cluster.bench.results.figures import Tally
from storage_cluster.bench.results.recorder import Recorder
from storage_cluster.bench.run.orders import Shared
from storage_cluster.bench.run.work import Share, run_work, whole
from storage_cluster.bench.run.worker import Bench
from storage_cluster.bench.storage import Storage
from storage_cluster.bench.storage.opening import Login, open_storage, timeouts_of

Shares = Mapping[str, Share]
"""Work's name to the part of it that is done here; a work that is not named is done elsewhere."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Too many failures of a work."""

    work: str
    failures_count: int
    operations_count: int
    acceptable_ppm: int

    def __str__(self) -> str:
        return (
            f"{self.failures_count:,} of {self.operations_count:,} operations of {self.work} failed;"
            f" {self.acceptable_ppm / 10_000:g} % are acceptable (afr)"
        )


class Runner:
    """Runs stages in this process."""

    def __init__(
        self,
        recorder: Recorder,
        *,
        seed: int = 1,
        login: Login | None = None,
        timeouts: Timeouts = Timeouts(),  # noqa: B008  frozen
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._recorder = recorder
        self._seed = seed
        self._login = login
        self._timeouts = timeouts
        self._sleep = sleep
        self._shared = Shared()
        self._storages: dict[tuple[StorageConfig, AuthConfig], Storage] = {}
        self._benches: list[Bench] = []
        self._stopped = asyncio.Event()
        self._is_held = False

    async def run(self, stage: Stage, shares: Shares | None = None) -> None:
        """Do a stage, or this process's part of it; more of it may be begun meanwhile.

        Raises: WorkloadError, NotRunningError.
        """
        if shares is None:
            shares = {work.name: whole(work) for work in stage.works}
        works = [work for work in stage.works if work.name in shares and work.kind is not Kind.DELAY]
        _check_connections(sum(shares[work.name].count for work in works), "workers")
        benches = [await self._bench(stage, work) for work in works]
        connections = sum(shares[bench.work.name].count * bench.storage.connections_max for bench in benches)
        _check_connections(connections, "connections (workers × parallel_parts)")
        allow_connections(connections)
        if self._stopped.is_set():
            return
        self._benches += benches
        if self._is_held:
            self.hold()
        try:
            async with self._recorder.flushing(), asyncio.TaskGroup() as group:
                for bench in benches:
                    group.create_task(run_work(bench, shares[bench.work.name]))
        finally:
            self._benches = [bench for bench in self._benches if bench not in benches]
        await self._recorder.flush()
        if stage.closure_delay_s and not self._stopped.is_set():
            await self._pause(stage.closure_delay_s)

    def stop(self) -> None:
        """Begin no more operations."""
        self._stopped.set()
        for bench in self._benches:
            bench.stopping = True
        self.release()

    def hold(self) -> None:
        """Pause: begin no operation until `release`."""
        self._is_held = True
        for bench in self._benches:
            bench.pause.hold()

    def release(self) -> None:
        """Go on after a pause."""
        self._is_held = False
        for bench in self._benches:
            bench.pause.release()

    async def _bench(self, stage: Stage, work: Work) -> Bench:
        key = (work.storage, work.auth)
        if key not in self._storages or not work.auth.cached:
            self._storages[key] = await open_storage(*key, self._timeouts, self._login)
        timeouts = timeouts_of(work.storage, self._timeouts)
        return Bench(
            *(stage.name, work, self._storages[key], self._recorder, self._shared, self._seed, timeouts),
            allowance=Allowance(work.connections_max),
        )

    async def _pause(self, seconds: float) -> None:
        sleeping = asyncio.ensure_future(self._sleep(seconds))
        stopping = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait((sleeping, stopping), return_when=asyncio.FIRST_COMPLETED)
        for waiting in (sleeping, stopping):
            waiting.cancel()


def verdicts(stage: Stage, tally: Tally) -> list[Verdict]:
    """Works of a stage that failed too often."""
    found = []
    for work in stage.works:
        total = tally.total(key for key in tally.figures if key[:2] == (stage.name, work.name))
        if total.failures_count * 1_000_000 > work.acceptable_failures_ppm * total.operations_count:
            found.append(Verdict(work.name, total.failures_count, total.operations_count, work.acceptable_failures_ppm))
    return found


def _check_connections(count: int, what: str) -> None:
    if count > CONNECTIONS_MAX:
        raise WorkloadError(
            f"{count:,} {what} at once are more than the {CONNECTIONS_MAX:,} of one driver",
            "use fewer, or more drivers",
        )
