"""Writes intermediate data that does not fit in memory, and reports if there is no room for it."""

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracer.errors import ResourceError

REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR)
"""Reasons that no free space would mend."""
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
        where, reason = folder or tempfile.gettempdir(), error.strerror or error
        if error.errno in REFUSED:
            raise ResourceError(f"intermediate data cannot be written to {where} ({reason})", otherwise) from None
        what = f"no room for intermediate data in {where} ({reason})"
        raise ResourceError(what, f"free some space there, or {otherwise}") from None
