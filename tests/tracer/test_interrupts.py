"""Signals put off: nothing within is cut in two, and nothing is forgotten."""

import os
import signal

import pytest

from tracer.interrupts import put_off


def test_what_comes_within_has_its_effect_behind() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), put_off():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        steps.append("whole")
    assert steps == ["whole"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_a_signal_nothing_changes() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with put_off():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before
