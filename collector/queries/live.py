"""Detects that a trace has been replaced while it is viewed."""

from collector.trace.data_directory import LIVE_ERROR_FILE, LIVE_FOLDER
from collector.trace.reading import Trace


def made_ns(trace: Trace) -> int:
    """When the trace that is there now was made; another number is another make.

    Raises: `InputError` if there is none.
    """
    return trace.info().created_ns


def is_live(trace: Trace) -> bool:
    """Whether a collector makes the trace anew while packets arrive, by its place."""
    return trace.name == LIVE_FOLDER


def live_error(trace: Trace) -> str:
    """Why the collector's last round made no newer trace; empty if it did, or if this is no live trace."""
    if not is_live(trace) or trace.folder is None:
        return ""
    note = trace.folder.parent / LIVE_ERROR_FILE
    return note.read_text(errors="replace").strip() if note.is_file() else ""
