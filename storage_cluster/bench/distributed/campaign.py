"""Runs one workload on several drivers, stage by stage; merges their figures, and collects their rows meanwhile.

Each driver's figures are histograms and sums, so the merged figures are those of one driver that had done everything.
If a driver is lost, what it had reported by then is kept, and the run's record names the driver. The run then ends or
continues, as configured; if it continues, the others take over at once the lost driver's rest of the stage (`split`).
"""

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path

import httpx

from storage_cluster.bench.distributed.remote import Driver, DriverLostError, Part
from storage_cluster.bench.distributed.split import deal_out, left_by, split
from storage_cluster.bench.distributed.wire import Mission
from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.fault_marks import fault_marks
from storage_cluster.bench.model import Stage, Workload
from storage_cluster.bench.results import folder as folders
from storage_cluster.bench.results.figures import Tally
from storage_cluster.bench.results.folder import RunInfo
from storage_cluster.bench.run.stage import verdicts

LOOK_INTERVAL_S = 0.5


@dataclasses.dataclass(frozen=True)
class Moment:
    """The progress of a run at one time."""

    elapsed_s: float
    stage: str
    operations_count: int
    failures_count: int
    retries_count: int
    bytes: int
    response_99_ns: int | None  # of the whole run until then; None: nothing has gone well yet


class Campaign:
    """A run on several drivers."""

    def __init__(
        self, mission: Mission, drivers: Sequence[Driver], folder: Path, *, stop_on_loss: bool = False
    ) -> None:
        self.folder = folder
        self.workload: Workload = mission.workload()
        self.info: RunInfo = dataclasses.replace(
            folders.describe(self.workload, "tracer bench controller", mission.settings),
            drivers=tuple(driver.name for driver in drivers),
        )
        self.moments: list[Moment] = []
        self._mission = mission
        self._stop_on_loss = stop_on_loss
        self._parts = [Part(driver, folder / driver.name) for driver in drivers]
        self._cancelled = False
        self._pause_wanted = False
        self._paused_since_ns = 0  # wall clock; 0: it goes on
        self._paused_ns = 0  # of the stage that runs: pauses that have ended

    @property
    def is_paused(self) -> bool:
        """Whether it is paused: what was asked for is done at the next look at the drivers."""
        return bool(self._paused_since_ns)

    def pause(self) -> None:
        """Begin no operation until `resume`; run times stand still."""
        self._pause_wanted = True

    def resume(self) -> None:
        """Go on after a pause."""
        self._pause_wanted = False

    @property
    def tally(self) -> Tally:
        """All drivers' figures, merged."""
        merged = Tally()
        for part in self._parts:
            merged.merge(part.tally)
        return merged

    def cancel(self) -> None:
        """Cancel the run: operations under way end, no new ones begin."""
        self._cancelled = True

    async def run(self) -> RunInfo:
        """Run all stages. Raises: RunError if the folder cannot be used."""
        folders.create(self.folder)
        folders.save(self.folder, self.info, Tally())
        try:
            state, note = await self._stages()
        except WorkloadError as error:
            state, note = "failed", str(error)
        for part in self._parts:
            await part.close(state)
        self._note_lost()
        ended_ns = time.time_ns()
        marks = (*self.info.marks, *fault_marks(self.info.started_ns, ended_ns))
        self.info = dataclasses.replace(self.info, state=state, note=note, ended_ns=ended_ns, marks=marks)
        folders.save(self.folder, self.info, self.tally)
        return self.info

    async def _stages(self) -> tuple[str, str]:
        await self._each("accept", self._mission)
        for number, stage in enumerate(self.workload.stages):
            started_ns = time.time_ns()
            self.info = folders.with_stage(self.info, number, started_ns, 0)
            self._paused_ns = 0
            shares = split(stage, [part.driver.name for part in self._here()])
            for part in self._here():
                part.shares.clear()
                await self._try(part, part.begin(number, shares[part.driver.name]))
            ended = await self._until_done(number, started_ns)
            self.info = folders.with_stage(self.info, number, started_ns, time.time_ns())
            folders.save(self.folder, self.info, self.tally)
            if ended:
                return ended
            failed = verdicts(stage, self.tally)
            if failed:
                return "failed", "; ".join(map(str, failed))
        return "done", ""

    async def _until_done(self, number: int, started_ns: int) -> tuple[str, str] | None:
        """Watch a stage until it ends; returns the reason if it ended the run."""
        stopped = False
        while True:
            running, errors = await self._look(number)
            if not self._here():
                return "failed", "every driver is lost"
            lost = self._note_lost()
            if lost and not (self._stop_on_loss or self._cancelled or errors):
                running |= await self._take_over(number, self._active_s(started_ns))
            if (self._cancelled or errors or (lost and self._stop_on_loss)) and not stopped:
                stopped = True
                self._mark("stopped", f"stopped in stage {self.workload.stages[number].name}")
                await self._each("stop")
            await self._apply_pause()
            if not running:
                break
            await asyncio.sleep(LOOK_INTERVAL_S)
        if errors:
            return "failed", "; ".join(errors)
        if self._cancelled:
            return "cancelled", f"called off in stage {self.workload.stages[number].name}"
        return ("failed", f"stopped, since {', '.join(lost)} was lost") if lost and self._stop_on_loss else None

    async def _apply_pause(self) -> None:
        """Pause the drivers, or let them go on, as was asked for."""
        if self._pause_wanted == bool(self._paused_since_ns):
            return
        if self._pause_wanted:
            self._paused_since_ns = time.time_ns()
            await self._each("pause")
            self._mark("paused", "paused")
            return
        await self._each("resume")
        self._paused_ns += time.time_ns() - self._paused_since_ns
        self._paused_since_ns = 0
        self._mark("resumed", "resumed")

    def _active_s(self, started_ns: int) -> float:
        """Seconds since a stage began, pauses left out."""
        now_ns = time.time_ns()
        paused_ns = self._paused_ns + (now_ns - self._paused_since_ns if self._paused_since_ns else 0)
        return (now_ns - started_ns - paused_ns) / 1e9

    def _mark(self, kind: str, text: str) -> None:
        mark = folders.Mark(kind, text, time.time_ns())
        self.info = dataclasses.replace(self.info, marks=(*self.info.marks, mark))

    async def _take_over(self, number: int, elapsed_s: float) -> bool:
        """Assign the remaining work of lost drivers to the others; returns whether there was any."""
        stage, began = self.workload.stages[number], False
        for part in (part for part in self._parts if part.lost and part.shares):
            if not self._here():
                break  # the last one was lost while it took over from another
            had, part.shares = part.shares, {}
            finished = part.status is not None and part.status.stage == number and not part.status.running
            left = {} if finished else left_by(stage, had, part.done_of(stage.name), elapsed_s)
            names = [each.driver.name for each in self._here()]
            for shares in deal_out(left, names):
                for each in self._here():
                    if shares[each.driver.name]:
                        await self._try(each, each.begin(number, shares[each.driver.name]))
                        began = True
            self._note_loss(part, stage, had, left, names)
        return began

    def _note_loss(
        self, part: Part, stage: Stage, had: Mapping[str, object], left: Mapping[str, object], names: Sequence[str]
    ) -> None:
        own = [work.name for work in stage.works if work.driver and work.name in had]
        what = f"{part.driver.name} was lost in stage {stage.name}"
        what += f"; {', '.join(names)} took over {', '.join(left)}" if left else ""
        what += f"; {', '.join(own)} was its own and is left undone" if own else ""
        self.info = dataclasses.replace(self.info, notes=(*self.info.notes, what))

    async def _look(self, number: int) -> tuple[bool, list[str]]:
        """Query every driver; returns whether any still works, and the errors."""
        running, errors = False, []
        for part in self._here():
            await self._try(part, part.look())
            if part.status is None or part.lost:
                continue
            running |= part.status.running or part.status.stage != number
            if part.status.error:
                errors.append(f"{part.driver.name}: {part.status.error}")
        self._note_moment(number)
        return running and bool(self._here()), errors

    def _note_moment(self, number: int) -> None:
        total = self.tally.total()
        self.moments.append(
            Moment(
                (time.time_ns() - self.info.started_ns) / 1e9,
                self.workload.stages[number].name,
                total.operations_count + total.outside_count,
                total.failures_count,
                total.retries_count,
                total.bytes,
                total.response.percentile_ns(99.0),
            )
        )

    def _here(self) -> list[Part]:
        return [part for part in self._parts if not part.lost]

    def _note_lost(self) -> list[str]:
        lost = [part.driver.name for part in self._parts if part.lost]
        for name in lost:
            if name not in self.info.lost_drivers:
                self._mark("driver lost", f"{name} lost")
        self.info = dataclasses.replace(self.info, lost_drivers=tuple(lost))
        return lost

    async def _each(self, what: str, *arguments: object) -> None:
        for part in self._here():
            await self._try(part, getattr(part, what)(*arguments))

    async def _try(self, part: Part, asking: Awaitable[object]) -> None:
        """Query a driver; if it is lost, it is omitted from now on."""
        try:
            await asking
        except DriverLostError:
            part.driver.alive = False
        except httpx.HTTPError:
            pass  # once is not lost; it is asked again
