"""The controller: its drivers, its queue of runs, its page. Runs are executed one after the other, oldest first.

    GET  /                           the page
    GET  /api/state                  drivers, runs, how the current one goes
    POST /api/runs                   a workload file (and settings) to be run
    POST /api/runs/ID/pause, resume, cancel
    POST /api/runs/ID/rerun          the same once more, with settings changed
    GET  /api/runs/ID …              results: `results_api`
    GET  /api/packets                which transaction ids have packets in the viewer's trace   ?id=&id=…

Runs are folders below one directory; folders of earlier runs are the history.
"""

import asyncio
import contextlib
import dataclasses
import re
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Query
from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response

from storage_cluster.bench.distributed.campaign import Campaign
from storage_cluster.bench.distributed.listening import guard
from storage_cluster.bench.distributed.packets import ask_viewer
from storage_cluster.bench.distributed.remote import Driver
from storage_cluster.bench.distributed.results_api import add_results
from storage_cluster.bench.distributed.wire import Mission
from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.model import StorageConfig
from storage_cluster.bench.results import folder as folders
from storage_cluster.bench.results.folder import RunInfo
from storage_cluster.bench.storage.opening import Login
from storage_cluster.bench.storage.s3_options import read_options
from storage_cluster.bench.storage.swift import Credentials
from storage_cluster.errors import ClusterError

PING_INTERVAL_S = 2.0
VIEWER = "http://127.0.0.1:8765"
"""Where `tracer view` serves a trace by default."""
PAGE = Path(__file__).with_name("page")
PAGE_FILES = {"page.css": "text/css", "page.js": "text/javascript", "charts.js": "text/javascript"}
MOST_IDS = 100
_RUN_ID = re.compile(r"[\w.-]+")


class Submission(BaseModel):
    """What the page sends."""

    file: str
    content: str
    settings: dict[str, str] = {}
    auth: str = ""  # a Swift store other than the file's
    user: str = ""
    key: str = ""
    s3: dict[str, str] = {}  # an S3 store other than the file's: its options

    def login(self) -> Login | None:
        """The store other than the file's, if there is one. Raises: WorkloadError."""
        if self.s3:
            store = StorageConfig("s3", tuple(self.s3.items()))
            read_options(store)
            return Login(store)
        return Login(Credentials(self.auth, self.user, self.key)) if self.auth else None


@dataclasses.dataclass
class Entry:
    """A submitted run."""

    key: str
    campaign: Campaign
    submission: Submission
    state: str = "queued"  # then running, then as the run's info says

    @property
    def shown_state(self) -> str:
        """The state for people: a run that is paused is running."""
        return "paused" if self.state == "running" and self.campaign.is_paused else self.state


class Changes(BaseModel):
    """What is to be set otherwise in a rerun."""

    settings: dict[str, str] = {}


class Controller:
    """Drivers and runs."""

    def __init__(
        self, drivers: Sequence[Driver], data: Path, *, stop_on_loss: bool = False, viewer: str = VIEWER
    ) -> None:
        self.drivers = drivers
        self.viewer = viewer.rstrip("/")
        self.entries: dict[str, Entry] = {}
        self._data = data
        self._stop_on_loss = stop_on_loss
        self._queue: asyncio.Queue[Entry] = asyncio.Queue()
        self._number = 0

    def submit(self, submission: Submission) -> Entry:
        """Queue a run. Raises: ClusterError."""
        content = submission.content.encode()
        mission = Mission("", submission.file, content, submission.settings, submission.login())
        self._number += 1
        key = f"{time.strftime('%Y%m%dT%H%M%S')}-{self._number}"
        here = [driver for driver in self.drivers if driver.alive]
        names = [driver.name for driver in here]
        if not here or len(set(names)) < len(names):
            what = f"two drivers are called alike ({', '.join(sorted(names))})" if here else "no driver answers"
            raise WorkloadError(what, "start drivers with: tracer bench driver --name NAME")
        campaign = Campaign(mission, here, self._data / key, stop_on_loss=self._stop_on_loss)
        entry = self.entries[key] = Entry(key, campaign, submission)
        self._queue.put_nowait(entry)
        return entry

    def rerun(self, key: str, settings: dict[str, str]) -> Entry:
        """Queue a run once more, with some settings changed. Raises: KeyError, ClusterError."""
        before = self.entries[key].submission
        return self.submit(before.model_copy(update={"settings": before.settings | settings}))

    def info(self, key: str) -> RunInfo:
        """A run's record, also while it goes on. Raises: KeyError, ClusterError."""
        if key in self.entries:
            return self.entries[key].campaign.info
        info = folders.load_info(self.folder(key))
        return dataclasses.replace(info, state="killed") if info.state == "running" else info

    def cancel(self, key: str) -> None:
        """Cancel a run."""
        entry = self.entries[key]
        entry.campaign.resume()
        entry.campaign.cancel()
        if entry.state == "queued":
            entry.state = "cancelled"

    async def work(self) -> None:
        """Execute queued runs, forever."""
        while True:
            entry = await self._queue.get()
            if entry.state != "queued":
                continue
            entry.state = "running"
            try:
                entry.state = (await entry.campaign.run()).state
            except ClusterError as error:
                entry.state = "failed"
                entry.campaign.info = dataclasses.replace(entry.campaign.info, state="failed", note=str(error))

    async def watch(self) -> None:
        """Check which drivers answer, forever."""
        while True:
            await asyncio.gather(*(driver.ping() for driver in self.drivers))
            await asyncio.sleep(PING_INTERVAL_S)

    def folder(self, key: str) -> Path:
        """A run's folder. Raises: KeyError if there is none."""
        path = self._data / key
        if not _RUN_ID.fullmatch(key) or key.startswith(".") or not (path / folders.INFO_NAME).exists():
            raise KeyError(key)
        return path

    def history(self) -> list[str]:
        """Runs, newest first."""
        earlier = [path.parent.name for path in self._data.glob(f"*/{folders.INFO_NAME}")]
        return sorted({*earlier, *self.entries}, reverse=True)


def create_app(controller: Controller, token: str = "") -> FastAPI:
    """The controller's service and page."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(controller.watch()), asyncio.create_task(controller.work())]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for driver in controller.drivers:
            await driver.client.aclose()

    app = FastAPI(title="tracer bench controller", lifespan=lifespan)
    guard(app, token)
    _add_page(app, controller)
    _add_rerun(app, controller)
    _add_runs(app, controller)
    add_results(app, controller)
    return app


def _add_page(app: FastAPI, controller: Controller) -> None:
    @app.get("/")
    def page() -> HTMLResponse:
        return HTMLResponse((PAGE / "index.html").read_text("utf-8"))

    @app.get("/page/{name}")
    def page_file(name: str) -> Response:
        if name not in PAGE_FILES:
            raise HTTPException(404, "no such file")
        return Response((PAGE / name).read_text("utf-8"), media_type=PAGE_FILES[name])

    @app.get("/api/state")
    def state() -> dict[str, Any]:
        drivers = [{"name": driver.name, "url": driver.url, "alive": driver.alive} for driver in controller.drivers]
        runs = [_outline(controller, key) for key in controller.history()]
        return {"drivers": drivers, "runs": runs, "viewer": controller.viewer}

    @app.get("/api/packets")
    async def packets(transaction_ids: Annotated[list[str], Query(alias="id", max_length=MOST_IDS)]) -> dict[str, Any]:
        return (await ask_viewer(controller.viewer, transaction_ids))._asdict()


def _add_rerun(app: FastAPI, controller: Controller) -> None:
    @app.post("/api/runs/{key}/rerun", status_code=201)
    async def rerun(key: str, changes: Changes) -> dict[str, str]:
        if key not in controller.entries:
            raise HTTPException(409, "its workload was given to an earlier controller; submit the file again")
        try:
            return {"id": controller.rerun(key, changes.settings).key}
        except ClusterError as error:
            raise HTTPException(422, str(error)) from None


def _add_runs(app: FastAPI, controller: Controller) -> None:
    @app.post("/api/runs", status_code=201)
    async def submit(submission: Submission) -> dict[str, str]:
        try:
            return {"id": controller.submit(submission).key}
        except ClusterError as error:
            raise HTTPException(422, str(error)) from None

    @app.post("/api/runs/{key}/cancel", status_code=202)
    async def cancel(key: str) -> None:
        if key not in controller.entries:
            raise HTTPException(404, "no such run")
        controller.cancel(key)

    @app.post("/api/runs/{key}/{what}", status_code=202)
    async def pause_or_resume(key: str, what: Literal["pause", "resume"]) -> None:
        entry = controller.entries.get(key)
        if entry is None or entry.state != "running":
            raise HTTPException(409, "the run is not running")
        (entry.campaign.pause if what == "pause" else entry.campaign.resume)()

    @app.get("/api/runs/{key}")
    def progress(key: str) -> dict[str, Any]:
        entry = controller.entries.get(key)
        outline = _outline(controller, key)
        if outline["state"] == "unreadable":
            return {**outline, "moments": [], "parameters": {}, "may_rerun": False}
        moments = [dataclasses.asdict(each) for each in entry.campaign.moments[-1:]] if entry else []
        parameters = controller.info(key).workload
        return {**outline, "moments": moments, "parameters": parameters, "may_rerun": entry is not None}


def _outline(controller: Controller, key: str) -> dict[str, Any]:
    """A run as a line of the history."""
    entry = controller.entries.get(key)
    if entry is not None:
        info, state = entry.campaign.info, entry.shown_state
    else:
        try:
            info = controller.info(key)
        except (KeyError, ClusterError):
            return {"id": key, "name": "?", "state": "unreadable", "note": "", "drivers": [], "lost": []}
        state = info.state
    return {
        "id": key, "name": info.name, "state": state, "note": info.note, "drivers": info.drivers,
        "lost": info.lost_drivers,
    }  # fmt: skip
