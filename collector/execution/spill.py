"""Writes intermediate data that does not fit in memory, and reports if there is no room for it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracer.errors import ResourceError


@contextmanager
def spill_errors(folder: Path | None) -> Iterator[None]:
    """A context for writing intermediate data to `folder` (the system's temporary one if None).

    Raises: `ResourceError` if there is no room.
    """
    try:
        yield
    except OSError as error:
        where = folder or tempfile.gettempdir()
        raise ResourceError(
            f"no room for intermediate data in {where} ({error.strerror or error})",
            "free some space there, or set TMPDIR to a larger disk",
        ) from None
