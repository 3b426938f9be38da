"""Reports the progress of an analysis.

Stages call `begin` and `advance` of a `Progress` that is passed in, whatever it displays. `advance` may be called from
several threads. Work is counted in packets, and measured as the share of the stage that is completed.
"""

from enum import StrEnum
from typing import Protocol

from msgspec import Struct


class Stage(StrEnum):
    """The stages that take time, in their order."""

    READ = "reading captures"
    PAIR = "pairing packets"
    REBUILD = "rebuilding requests"
    LINK = "linking requests, looking for findings"


WEIGHTS = {Stage.READ: 0.3, Stage.PAIR: 0.3, Stage.REBUILD: 0.3, Stage.LINK: 0.1}
"""Approximate share of each stage, measured with ten million packets (docs/performance.md)."""


class Progress(Protocol):
    """The receiver of progress reports."""

    def begin(self, stage: Stage) -> None:
        """The previous stage has ended, and this one begins."""

    def advance(self, packets: int, share: float) -> None:
        """So many more packets, and so large a share (0 to 1), of the current stage are completed."""

    def end(self) -> None:
        """The last stage has ended."""


class Silent:
    """A `Progress` that shows nothing."""

    def begin(self, stage: Stage) -> None:
        """Nothing."""

    def advance(self, packets: int, share: float) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


SILENT = Silent()


class CountedProgress(Struct):
    """Calls `advance` for the parts of a stage that has `total` units."""

    progress: Progress
    total: int

    def note_completed(self, packets: int, units: int) -> None:
        """Report so many completed packets and units."""
        self.progress.advance(packets, units / self.total if self.total else 0.0)
