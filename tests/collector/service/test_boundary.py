"""What the collector logs of errors that nobody awaits."""

import asyncio
import errno
import logging

import pytest

from collector.service.boundary import note_loop_failure


def failing_with(error: Exception) -> None:
    """An event loop with the collector's handler, in a callback of which an error is raised."""

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(note_loop_failure)
        asyncio.get_running_loop().call_exception_handler({"message": "socket.accept() failed", "exception": error})

    asyncio.run(run())


def test_no_descriptors_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    failing_with(OSError(errno.EMFILE, "Too many open files"))
    (record,) = caplog.records
    assert record.getMessage().startswith("no connections are accepted for a second: Too many open files; ")
    assert record.levelno == logging.ERROR
    assert record.exc_info is None


def test_a_mistake_of_ours_keeps_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    failing_with(ZeroDivisionError("a mistake"))
    (record,) = caplog.records
    assert record.exc_info is not None
