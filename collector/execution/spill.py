"""Writes intermediate data that does not fit in memory, and reports if there is no room for it."""

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

from tracer.errors import ResourceError
from tracer.scratch import Scratch

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


class Spilling:
    """What keeps intermediate data in files of a folder of its own, which is made with the first of them. A context
    manager: on exit, the folder is removed.

    Arguments: `spill`, where the folder is made (the system's temporary one if None).
    """

    def __init__(self, spill: Path | None = None) -> None:
        self.spill = spill
        self._folder: Scratch | None = None
        self._folder_lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def path(self, name: str) -> Path:
        """Where a file of that name is, or can be made. Safe to call from several threads. Raises: OSError."""
        with self._folder_lock:
            if self._folder is None:
                self._folder = Scratch(self.spill)
        return Path(self._folder.name) / name
