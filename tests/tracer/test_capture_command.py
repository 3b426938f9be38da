"""`tracer capture` on the command line: what it refuses before it captures, each in one line."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tracer.commands import capture
from tracer.commands.capture import command
from tracer.errors import InputError, TracerError


@pytest.fixture(autouse=True)
def kept_capabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command runs in this process, which other tests need root's rights of."""
    monkeypatch.setattr(capture, "drop_capabilities", lambda *_, **__: frozenset())


def run(*arguments: str) -> BaseException | None:
    """What it raises; for a click error, its message as a `TracerError`."""
    done = CliRunner().invoke(command, arguments)
    return TracerError(done.output) if isinstance(done.exception, SystemExit) else done.exception


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing option '-i'"),
        (("-i", "lo"), "Give either --write DIR or --collector URL"),
        (
            ("-i", "lo", "--write", "d", "--collector", "http://127.0.0.1:1"),
            "Give either --write DIR or --collector URL",
        ),
        (("-i", "lo", "--write", "d", "--host", "../up"), "is no name for a host"),
        (("-i", "lo", "--collector", "http://127.0.0.1:1", "--session", "a/b"), "is no name for a session"),
        (("-i", "lo", "--collector", "h:1"), "is no collector's URL"),
        (("-i", "lo", "--collector", "http://10.0.0.5:1"), "is on another machine and not encrypted"),
        (("-i", "lo", "--collector", "https://h:1", "--ca", "/nowhere"), "/nowhere cannot be read: No such file"),
        (("-i", "lo", "--bundle", "/dev/null"), "/dev/null is no bundle of certificates; give the agent.pem"),
        (("-i", "lo", "--bundle", "b", "--ca", "c"), "--bundle has its own certificates"),
        (("-i", "lo", "--collector", "https://h:1", "--key", "k"), "--key is of a certificate, and there is none"),
        (("-i", "lo", "--collector-file", "/dev/null"), "the address file /dev/null is empty"),
        (("-i", "lo", "--collector", "https://h:1", "--token", "abc"), "a token on the command line is no secret"),
        (("-i", "lo", "--write", "d", "--payload", "most"), "give none, heads or a number of bytes"),
        (("-i", "lo", "--write", "d", "--snaplen", "1"), "64<=x<=500000"),
        (("-i", "lo", "--write", "d", "--clock-error", "offset_ns=5ms"), "is not like offset_ns=5000000"),
        (("-i", "lo", "--write", "d", "--clock-error", "ofset=5"), "is not like offset_ns=5000000"),
        (("-i", "lo", "--write", "/proc/nowhere"), "cannot write to /proc/nowhere"),
        (("-i", "lo", "--write", "d", "tcp", "prt"), "the filter 'tcp prt' does not compile"),
    ],
)
def test_refusals(arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    raised = run(*arguments)
    assert isinstance(raised, TracerError)
    assert message in str(raised)
    assert list(tmp_path.rglob("*")) == []


def test_other_systems_than_linux_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tracer.agent.sys.platform", "darwin")
    raised = run("-i", "lo0", "--write", str(tmp_path))
    assert isinstance(raised, InputError)
    assert "live capture needs Linux" in str(raised)


def test_the_end_of_standard_input_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    with path.open() as ended:
        monkeypatch.setattr(capture.sys, "stdin", ended)
        assert capture._input_ended()
    path.write_text("x")
    with path.open() as more:
        monkeypatch.setattr(capture.sys, "stdin", more)
        assert not capture._input_ended()
