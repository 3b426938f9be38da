"""Work that the collector repeats goes on after what the disk refuses."""

import logging
import threading

import pytest

from collector.service.background import Background


def test_what_the_disk_refuses_is_logged_once_and_the_work_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    rounds = iter([OSError("disk full"), OSError("disk full"), None, OSError("disk full")])
    done = threading.Event()

    def work() -> None:
        problem = next(rounds, StopIteration)
        if problem is StopIteration:
            done.set()
        elif problem is not None:
            raise problem

    background = Background("joining", 0.001, work)
    background.start()
    assert done.wait(60), "a round that failed was the last"
    background.stop()
    assert background.is_stopped
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert said == ["joining: disk full"] * 2, "once until it went well again"


def test_what_never_began_can_be_stopped() -> None:
    background = Background("joining", 60, lambda: None)
    background.stop()
    assert background.is_stopped
