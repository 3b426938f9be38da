"""How far an analysis is: what its stages say on the way, to whom it concerns.

Stages call `begin` and `advance` of a `Progress` that is passed in; they know nothing of what it shows. `advance` may
be called from several threads. Work is counted in packets, and measured in the share of the stage that is done.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Stage(StrEnum):
    """The stages that take time, in their order."""

    READ = "reading captures"
    PAIR = "pairing packets"
    REBUILD = "rebuilding requests"
    LINK = "linking requests, looking for findings"


WEIGHTS = {Stage.READ: 0.3, Stage.PAIR: 0.3, Stage.REBUILD: 0.3, Stage.LINK: 0.1}
"""What share of the whole each takes, about: of ten million packets, as docs/architecture.md has it."""


class Progress(Protocol):
    """Who is told how far an analysis is."""

    def begin(self, stage: Stage) -> None:
        """The stage before has ended, and this one begins."""

    def advance(self, packets: int, share: float) -> None:
        """Of the stage begun last, so many more packets are done, and so much of it (0 to 1)."""

    def end(self) -> None:
        """The last stage has ended."""


class Silent:
    """Says nothing."""

    def begin(self, stage: Stage) -> None:
        """Nothing."""

    def advance(self, packets: int, share: float) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


SILENT = Silent()


@dataclass(slots=True)
class Counted:
    """Calls `advance` for the parts of a stage, of which there are `total` units."""

    progress: Progress
    total: int

    def done(self, packets: int, units: int) -> None:
        """So many packets, and so many units."""
        self.progress.advance(packets, units / self.total if self.total else 0.0)
