"""Intermediate data that does not fit in memory: where it goes, and what is said if it finds no room there."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracer.errors import ResourceError


@contextmanager
def spilling(folder: Path | None) -> Iterator[None]:
    """Writing intermediate data to `folder` (the system's temporary one if None).

    Raises: `ResourceError` if it finds no room there.
    """
    try:
        yield
    except OSError as error:
        where = folder or tempfile.gettempdir()
        raise ResourceError(
            f"no room for intermediate data in {where} ({error.strerror or error})",
            "free some space there, or set TMPDIR to a larger disk",
        ) from None
