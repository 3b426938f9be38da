"""What is said when intermediate data cannot be written: whether room would help."""

import errno
import os
from pathlib import Path

import pytest

from collector.execution.spill import spill_errors
from tracer.errors import ResourceError


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "no room for intermediate data in /data (No space left on device); free some space there, or X"),
        (errno.EROFS, "intermediate data cannot be written to /data (Read-only file system); X"),
        (errno.EACCES, "intermediate data cannot be written to /data (Permission denied); X"),
    ],
)
def test_room_is_asked_for_only_where_it_would_help(number: int, words: str) -> None:
    with pytest.raises(ResourceError) as caught, spill_errors(Path("/data"), "X"):
        raise OSError(number, os.strerror(number))
    assert str(caught.value) == words
