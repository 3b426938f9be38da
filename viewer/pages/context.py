"""The data of the pages: the trace, and what was found beside it. Paths come only from the command line."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collector.queries import TraceView, find_runs


@dataclass(frozen=True, slots=True)
class Beside:
    """What was given at start-up beside the trace."""

    runs: tuple[Path, ...] = ()  # folders of the load generator's runs
    traces: tuple[str, ...] = ()  # others to compare with


@dataclass(frozen=True, slots=True)
class Given:
    """A trace and what stands beside it."""

    trace: TraceView
    beside: Beside

    def runs(self) -> tuple[Path, ...]:
        """Folders of runs: those given, or else those that were recorded as this trace. Looked up anew each time."""
        return find_runs(self.beside.runs) if self.beside.runs else self.trace.runs_beside()


def short_names(traces: Sequence[str]) -> list[str]:
    """The last part of each, with a number where they are the same."""
    names = [trace.rstrip("/").rsplit("/", 1)[-1] for trace in traces]
    return [name if names.count(name) == 1 else f"{name} ({at + 1})" for at, name in enumerate(names)]
