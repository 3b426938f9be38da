"""The controller's view of a driver: its answers, its rows fetched so far, whether it is lost."""

import dataclasses
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import httpx

from storage_cluster.bench.distributed.wire import Mission, Status, dump_shares
from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.results import rows
from storage_cluster.bench.results.figures import Tally
from storage_cluster.bench.run.work import Share

ANSWER_TIMEOUT_S = 5.0
FAILURES_UNTIL_LOST = 3


class DriverLostError(Exception):
    """The driver no longer answers."""


class Driver:
    """A driver's address, and the client for its requests."""

    def __init__(self, url: str, token: str = "") -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url = url.rstrip("/")
        self.name = self.url  # until it has answered with its own
        self.alive = False
        self.client = httpx.AsyncClient(base_url=self.url, headers=headers, timeout=ANSWER_TIMEOUT_S, trust_env=False)

    async def ping(self) -> bool:
        """Whether the driver answers; stores its name."""
        try:
            answer = await self.client.get("/")
            answer.raise_for_status()
            self.name = str(answer.json()["name"])
            self.alive = True
        except (httpx.HTTPError, ValueError, KeyError):
            self.alive = False
        return self.alive


@dataclasses.dataclass
class Part:
    """One driver's part of a run."""

    driver: Driver
    folder: Path
    mission: str = ""
    tally: Tally = dataclasses.field(default_factory=Tally)  # as of the last answer
    status: Status | None = None
    lost: bool = False
    fetched_len: int = 0
    failures_count: int = 0
    shares: dict[str, list[Share]] = dataclasses.field(default_factory=dict)  # of the stage that runs, by work

    async def accept(self, mission: Mission) -> None:
        """Send it the workload. Raises: DriverLostError, WorkloadError."""
        answer = await self._await_answer(self.driver.client.post("/missions", json=mission.dump()), patience=1)
        if answer.status_code == 422:
            raise WorkloadError(f"{self.driver.name}: {answer.json()['detail']}", "mend the workload")
        self.mission = str(self._json(answer)["id"])
        self.folder.mkdir()

    async def begin(self, stage: int, shares: dict[str, Share]) -> None:
        """Order it to begin a stage, or more of the one that runs. Raises: DriverLostError."""
        for work, share in shares.items():
            self.shares.setdefault(work, []).append(share)
        url = f"/missions/{self.mission}/stages/{stage}"
        answer = await self._await_answer(self.driver.client.post(url, json=dump_shares(shares)), patience=1)
        if answer.status_code != 202:
            self._lose()

    async def look(self) -> Status:
        """Its progress; fetches the rows behind it. Raises: DriverLostError."""
        answer = await self._await_answer(self.driver.client.get(f"/missions/{self.mission}"))
        found = Status(**self._json(answer))
        await self._fetch(found.rows_len)
        self.tally, self.status = Tally.load(found.figures), found
        return found

    def done_of(self, stage: str) -> dict[str, tuple[int, int]]:
        """The operations and bytes that it has reported, by work."""
        found: dict[str, tuple[int, int]] = {}
        for key, figures in self.tally.figures.items():
            if key.stage == stage:
                ops, moved = found.get(key.work, (0, 0))
                count = figures.operations_count + figures.outside_count
                found[key.work] = ops + count, moved + figures.bytes
        return found

    async def stop(self) -> None:
        """Order it to begin no more operations. Raises: DriverLostError."""
        await self._await_answer(self.driver.client.post(f"/missions/{self.mission}/stop"))

    async def pause(self) -> None:
        """Order it to begin no operation for now. Raises: DriverLostError."""
        await self._await_answer(self.driver.client.post(f"/missions/{self.mission}/pause"))

    async def resume(self) -> None:
        """Order it to go on. Raises: DriverLostError."""
        await self._await_answer(self.driver.client.post(f"/missions/{self.mission}/resume"))

    async def close(self, state: str) -> None:
        """Announce the end of the mission; whether the driver receives it no longer matters."""
        if self.mission and not self.lost:
            try:
                await self.driver.client.delete(f"/missions/{self.mission}", params={"state": state})
            except httpx.HTTPError:
                self.lost = True

    async def _fetch(self, rows_len: int) -> None:
        while self.fetched_len < rows_len:
            parameters = {"start": self.fetched_len, "end": rows_len}
            answer = await self._await_answer(
                self.driver.client.get(f"/missions/{self.mission}/rows", params=parameters)
            )
            if not answer.content:
                self._lose()
            with (self.folder / rows.FILE_NAME).open("ab") as stream:
                stream.write(answer.content)
            self.fetched_len += len(answer.content)

    async def _await_answer(
        self, asking: Awaitable[httpx.Response], *, patience: int = FAILURES_UNTIL_LOST
    ) -> httpx.Response:
        """Await an answer; a driver whose port is closed, or that is silent several times in a row, is lost."""
        try:
            answer = await asking
        except httpx.HTTPError as error:
            self.failures_count += 1
            if self.failures_count >= patience or isinstance(error, httpx.ConnectError):
                self._lose()
            raise
        self.failures_count = 0
        return answer

    def _json(self, answer: httpx.Response) -> dict[str, Any]:
        if answer.status_code != 200:
            self._lose()  # it was started anew and knows nothing of this
        found: dict[str, Any] = answer.json()
        return found

    def _lose(self) -> None:
        self.lost = True
        raise DriverLostError(self.driver.name)
