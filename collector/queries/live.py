"""Detects that a trace has been replaced while it is viewed."""

from pathlib import Path, PurePosixPath

from collector.trace.data_directory import LIVE_ERROR_FILE, LIVE_FOLDER
from collector.trace.store import read_info


def made_ns(url: str) -> int:
    """When the trace that is there now was made; another number is another make.

    Raises: `InputError` if `url` is no trace.
    """
    return read_info(url).created_ns


def is_live(url: str) -> bool:
    """Whether a collector makes the trace anew while packets arrive, by its place."""
    return PurePosixPath(url.rstrip("/")).name == LIVE_FOLDER


def live_error(url: str) -> str:
    """Why the collector's last round made no newer trace; empty if it did, or if `url` is no live trace."""
    note = Path(url).parent / LIVE_ERROR_FILE
    return note.read_text(errors="replace").strip() if is_live(url) and note.is_file() else ""
