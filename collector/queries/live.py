"""What tells of a trace that is made anew while it is looked at."""

from pathlib import PurePosixPath

from collector.ingest import LIVE_FOLDER
from collector.store import read_info


def made_ns(url: str) -> int:
    """When the trace that is there now was made; another number is another make.

    Raises: `InputError` if `url` is no trace.
    """
    return read_info(url).created_ns


def is_live(url: str) -> bool:
    """Whether a collector makes the trace anew while packets arrive, by its place."""
    return PurePosixPath(url.rstrip("/")).name == LIVE_FOLDER
