"""Writes intermediate data that does not fit in memory, and reports if there is no room for it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracer.errors import ResourceError

OTHER_FOLDER = "set TMPDIR to a larger disk"


@contextmanager
def spill_errors(folder: Path | None, otherwise: str = OTHER_FOLDER) -> Iterator[None]:
    """A context for writing intermediate data to `folder` (the system's temporary one if None).

    Arguments: `otherwise`, what an operator can do if no space can be freed there.

    Raises: `ResourceError` if there is no room.
    """
    try:
        yield
    except OSError as error:
        where = folder or tempfile.gettempdir()
        raise ResourceError(
            f"no room for intermediate data in {where} ({error.strerror or error})",
            f"free some space there, or {otherwise}",
        ) from None
