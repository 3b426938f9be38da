"""The JSON messages between controller and driver."""

import base64
import dataclasses
from typing import Any

from storage_cluster.bench import formats, parameters
from storage_cluster.bench.model import Workload
from storage_cluster.bench.run.work import Share
from storage_cluster.bench.storage.opening import Login


@dataclasses.dataclass(frozen=True)
class Mission:
    """A driver's task: a workload file unchanged, and the settings that override it."""

    driver: str
    file: str  # its name
    content: bytes
    settings: dict[str, str]  # parameters set otherwise
    login: Login | None  # a store other than the file's
    seed: int = 1

    def workload(self) -> Workload:
        """The workload. Raises: WorkloadError."""
        made = formats.parse(self.content, self.file)[0]
        for name, value in self.settings.items():
            made = parameters.change(made, name, value)
        return made

    def dump(self) -> dict[str, Any]:
        """For JSON."""
        login = self.login.dump() if self.login else None
        return {**dataclasses.asdict(self), "content": base64.b64encode(self.content).decode(), "login": login}

    @classmethod
    def load(cls, dumped: dict[str, Any]) -> "Mission":
        """What `dump` gave. Raises: ValueError, KeyError, TypeError if it is something else."""
        login = Login.load(dumped["login"]) if dumped["login"] else None
        return cls(**{**dumped, "content": base64.b64decode(dumped["content"]), "login": login})


@dataclasses.dataclass(frozen=True)
class Status:
    """The progress of a driver's mission."""

    stage: int  # the one that runs or ran last; -1: none yet
    running: bool
    error: str  # what ended the stage before its time
    figures: list[dict[str, Any]]  # a dumped Tally
    rows_len: int  # of the rows that the figures are drawn from, in the file


def dump_shares(shares: dict[str, Share]) -> dict[str, dict[str, Any]]:
    """For JSON."""
    return {work: dataclasses.asdict(share) for work, share in shares.items()}


def load_shares(dumped: dict[str, dict[str, Any]]) -> dict[str, Share]:
    """What `dump_shares` gave. Raises: TypeError if it is something else."""
    return {work: Share(**values) for work, values in dumped.items()}
