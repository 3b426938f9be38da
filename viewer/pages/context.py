"""The data of the pages: the trace, and the runs and traces that are shown with it.

Paths come only from the command line.
"""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from collector.queries import TraceSearch, TraceView, find_runs


class Companions(Struct, frozen=True):
    """The runs and traces that the command line names besides the trace."""

    runs: tuple[Path, ...] = ()  # folders of the load generator's runs
    traces: tuple[str, ...] = ()  # others to compare with


class PageData(Struct, frozen=True):
    """A trace, a search over it, and its companions."""

    trace: TraceView
    search: TraceSearch
    companions: Companions

    def runs(self) -> tuple[Path, ...]:
        """Folders of runs: those named, or else those that this trace was recorded of. Looked up anew each time."""
        return find_runs(self.companions.runs) if self.companions.runs else self.trace.runs_beside()


def short_names(traces: Sequence[str]) -> list[str]:
    """The last part of each, with a number where they are the same."""
    names = [trace.rstrip("/").rsplit("/", 1)[-1] for trace in traces]
    return [name if names.count(name) == 1 else f"{name} ({at + 1})" for at, name in enumerate(names)]
