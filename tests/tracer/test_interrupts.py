"""Signals put off: nothing within is cut in two, and nothing is forgotten."""

import os
import signal

import pytest

from tracer.interrupts import call_on_interrupt, defer_interrupts

pytestmark = pytest.mark.usefixtures("signals_of_a_terminal")


def test_what_comes_within_has_its_effect_behind() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), defer_interrupts():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        steps.append("whole")
    assert steps == ["whole"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_a_signal_nothing_changes() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with defer_interrupts():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_a_signal_is_answered_and_raises_nothing_but_an_ignored_one_is_not() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    asked = []
    try:
        with call_on_interrupt(lambda: asked.append("asked")):
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                os.kill(os.getpid(), number)
        assert asked == ["asked"] * 2
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
