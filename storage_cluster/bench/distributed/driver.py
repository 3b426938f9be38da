"""A driver: runs its part of each stage on the controller's order, and reports its progress.

    POST   /missions                    a workload -> {"id": …}
    POST   /missions/ID/stages/NUMBER   begin a stage, or more of the one that runs: work -> its share
    GET    /missions/ID                 how it goes: figures, and how much of the rows they are drawn from
    GET    /missions/ID/rows?from=N     the file of rows from byte N on, up to the last complete frame
    POST   /missions/ID/pause, resume   begin no operation until then
    POST   /missions/ID/stop            begin no more operations
    DELETE /missions/ID                 that was all
    GET    /                            who I am

Rows and figures are in the driver's own folder too, so nothing is lost with the controller.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Response

from storage_cluster.bench.cluster_store import names_its_store, store_of
from storage_cluster.bench.distributed.listening import guard
from storage_cluster.bench.distributed.wire import Mission, Status, load_shares
from storage_cluster.bench.model import Workload
from storage_cluster.bench.results import folder as folders
from storage_cluster.bench.results import rows
from storage_cluster.bench.results.recorder import Recorder
from storage_cluster.bench.run.stage import Runner
from storage_cluster.bench.run.work import Share
from storage_cluster.errors import ClusterError
from storage_cluster.hosts.cluster import ClusterStatus

ROWS_AT_ONCE = 8 << 20


class _Doing:
    """A mission in progress."""

    def __init__(self, mission: Mission, workload: Workload, folder: Path) -> None:
        folders.create(folder)
        self._folder = folder
        self._workload = workload
        self._info = folders.describe(workload, f"driver {mission.driver}", mission.settings)
        self._recorder = Recorder(folder, mission.driver)
        self._runner = Runner(self._recorder, seed=mission.seed, login=mission.login)
        self._tasks: list[asyncio.Task[None]] = []  # of the stage that runs or ran last
        self._stage = -1
        self._error = ""
        folders.save(folder, self._info, self._recorder.tally)

    def begin(self, number: int, shares: dict[str, Share]) -> None:
        if not self.running:
            self._tasks.clear()
            self._stage, self._error = number, ""
        assert number == self._stage
        self._tasks.append(asyncio.create_task(self._run(number, shares)))

    def may_begin(self, number: int) -> bool:
        """Whether there is such a stage, and no other is running."""
        return 0 <= number < len(self._workload.stages) and (not self.running or number == self._stage)

    @property
    def running(self) -> bool:
        return not all(task.done() for task in self._tasks)

    async def status(self) -> Status:
        state = await self._recorder.state()
        return Status(self._stage, self.running, self._error, state.tally, state.rows_len)

    def rows(self, start: int, end: int) -> bytes:
        with (self._folder / rows.FILE_NAME).open("rb") as stream:
            stream.seek(start)
            return stream.read(max(end - start, 0))

    def hold(self) -> None:
        self._runner.hold()

    def release(self) -> None:
        self._runner.release()

    def stop(self) -> None:
        self._runner.stop()

    async def close(self, state: str) -> None:
        self._runner.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._recorder.close()
        info = dataclasses.replace(self._info, state=state, ended_ns=time.time_ns())
        folders.save(self._folder, info, self._recorder.tally)

    async def _run(self, number: int, shares: dict[str, Share]) -> None:
        started_ns = time.time_ns()
        try:
            await self._runner.run(self._workload.stages[number], shares)
        except* ClusterError as group:
            self._error = "; ".join(str(error) for error in group.exceptions)
        self._info = folders.with_stage(self._info, number, started_ns, time.time_ns())
        folders.save(self._folder, self._info, self._recorder.tally)


def create_app(name: str, data: Path, token: str = "", running: ClusterStatus | None = None) -> FastAPI:
    """The driver's service; `running` is the cluster whose store is meant where a workload names none."""
    doing: dict[str, _Doing] = {}

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        for each in doing.values():
            await each.close("cancelled")

    app = FastAPI(title=f"tracer bench driver {name}", lifespan=lifespan)
    guard(app, token)
    ids = (f"{time.strftime('%Y%m%dT%H%M%S')}-{number}" for number in itertools.count(1))

    def find_mission(mission: str) -> _Doing:
        if mission not in doing:
            raise HTTPException(404, "no such mission")
        return doing[mission]

    @app.get("/")
    def about() -> dict[str, Any]:
        return {"name": name, "missions": {key: each.running for key, each in doing.items()}}

    @app.post("/missions")
    async def accept(body: dict[str, Any]) -> dict[str, str]:
        try:
            mission = Mission.load({**body, "driver": name})
        except (ValueError, KeyError, TypeError) as error:
            raise HTTPException(422, f"not a mission ({error})") from None
        key = next(ids)
        try:
            workload = mission.workload()
            if running and not mission.login and not names_its_store(workload, on_cluster=False):
                mission = dataclasses.replace(mission, login=store_of(running, workload))
            doing[key] = _Doing(mission, workload, data / key)
        except ClusterError as error:
            raise HTTPException(422, str(error)) from None
        return {"id": key}

    @app.post("/missions/{mission}/stages/{number}", status_code=202)
    async def begin(mission: str, number: int, shares: dict[str, dict[str, Any]]) -> None:
        each = find_mission(mission)
        if not each.may_begin(number):
            raise HTTPException(409, "another stage is running" if each.running else "no such stage")
        try:
            each.begin(number, load_shares(shares))
        except TypeError as error:
            raise HTTPException(422, f"not shares ({error})") from None

    @app.get("/missions/{mission}")
    async def status(mission: str) -> dict[str, Any]:
        return dataclasses.asdict(await find_mission(mission).status())

    @app.get("/missions/{mission}/rows")
    async def some_rows(mission: str, start: int, end: int) -> Response:
        part = find_mission(mission).rows(start, min(end, start + ROWS_AT_ONCE))
        return Response(part, media_type="application/zstd")

    @app.post("/missions/{mission}/stop", status_code=202)
    async def stop(mission: str) -> None:
        find_mission(mission).stop()

    @app.post("/missions/{mission}/pause", status_code=202)
    async def pause(mission: str) -> None:
        find_mission(mission).hold()

    @app.post("/missions/{mission}/resume", status_code=202)
    async def resume(mission: str) -> None:
        find_mission(mission).release()

    @app.delete("/missions/{mission}")
    async def close(mission: str, state: str = "done") -> None:
        await find_mission(mission).close(state)
        del doing[mission]

    return app
