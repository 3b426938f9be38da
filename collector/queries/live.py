"""Detects that a trace has been replaced while it is viewed."""

from collector.trace.data_directory import LIVE_ERROR_FILE, LIVE_FOLDER
from collector.trace.reading import Trace


def made_ns(trace: Trace) -> int:
    """The time at which the current trace was written; it changes whenever the trace is replaced.

    Raises: `InputError` if there is none.
    """
    return trace.info().created_ns


def is_live(trace: Trace) -> bool:
    """Whether the trace is a collector's live trace, by its path."""
    return trace.name == LIVE_FOLDER


def live_error(trace: Trace) -> str:
    """The reason why the collector's last round wrote no trace; empty if it wrote one, or if this is no live trace."""
    if not is_live(trace) or trace.folder is None:
        return ""
    note = trace.folder.parent / LIVE_ERROR_FILE
    return note.read_text(errors="replace").strip() if note.is_file() else ""
