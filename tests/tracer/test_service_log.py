"""The log of a service: its lines, and what is never in one."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tracer import service_log
from tracer.cli import main
from tracer.errors import InputError
from tracer.service_log import LogFormat, formatter, hide, log_for_program, notice_to, start_log

AT_S = 1764177605.1236
LOG = logging.getLogger("twintap.agent")


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(service_log, "_hidden", [])
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    root, ours = logging.getLogger(), logging.getLogger("twintap")
    handlers, level = list(root.handlers), ours.level
    yield
    root.handlers[:] = handlers
    ours.setLevel(level)
    logging.captureWarnings(False)


def record(message: str, level: int = logging.WARNING, **fields: object) -> logging.LogRecord:
    found = logging.LogRecord("twintap.collector", level, __file__, 1, "%s", (message,), None)
    found.created = AT_S
    found.__dict__.update(fields)
    return found


def test_a_line_of_text_has_time_level_and_component() -> None:
    line = formatter(LogFormat.TEXT).format(record("an agent is silent", session="shop"))
    assert line == "2025-11-26T17:20:05.123Z WARNING collector: an agent is silent"
    assert formatter(LogFormat.TEXT, has_time=False).format(record("x")) == "WARNING collector: x"
    assert formatter(LogFormat.PLAIN).format(record("x")) == "tracer: x"


def test_an_object_has_what_the_event_is_about() -> None:
    line = formatter(LogFormat.JSON).format(record("segment 7 was refused", session="shop", host="web1", segment=7))
    assert json.loads(line) == {
        "time": "2025-11-26T17:20:05.123Z",
        "level": "warning",
        "logger": "twintap.collector",
        "message": "segment 7 was refused",
        "session": "shop",
        "host": "web1",
        "segment": 7,
    }


@pytest.mark.parametrize("form", list(LogFormat))
def test_what_a_peer_sent_is_one_line_without_secrets(form: LogFormat) -> None:
    hide("pearl-oyster-77")
    text = "refused\n2025-11-26 ERROR forged: x; Authorization: Bearer abcdef0123456789; with pearl-oyster-77\x1b[2J"
    line = formatter(form).format(record(text, reason="token=abcdef0123456789 pearl-oyster-77"))
    assert "\n" not in line
    assert "\x1b" not in line
    assert "abcdef0123456789" not in line
    assert "pearl-oyster-77" not in line
    assert "forged" in line


@pytest.mark.parametrize("form", list(LogFormat))
def test_a_traceback_is_without_secrets_too(form: LogFormat) -> None:
    hide("pearl-oyster-77")
    try:
        raise ValueError("pearl-oyster-77")
    except ValueError:
        found = record("a defect", exc_info=sys.exc_info())
    line = formatter(form).format(found)
    assert "ValueError" in line
    assert "pearl" not in line
    assert form is not LogFormat.JSON or "ValueError" in json.loads(line)["traceback"]


def test_a_notice_has_the_level_and_the_fields_of_its_service(capsys: pytest.CaptureFixture[str]) -> None:
    start_log(LogFormat.JSON)
    notice_to(LOG, session="shop", host="web1")("the spool is full", logging.WARNING, count=3)
    notice_to(LOG)("it has room again")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["level"], first["session"], first["host"], first["count"]) == ("warning", "shop", "web1", 3)
    assert (second["level"], second.keys() & {"session", "host", "count"}) == ("info", set())


def test_libraries_and_warnings_are_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    start_log(LogFormat.JSON)
    start_log(LogFormat.JSON)
    logging.getLogger("waitress.queue").warning("Task queue depth is 1")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["logger"] == "waitress.queue"


def _end_of(command: click.Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr("tracer.cli.tracer", command)
    monkeypatch.setattr(sys, "argv", ["tracer"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("form", "says", "expected"),
    [
        (LogFormat.TEXT, False, "tracer: no interface; give one"),
        (LogFormat.TEXT, True, "Z ERROR twintap: no interface; give one"),
        (LogFormat.PLAIN, True, "tracer: no interface; give one"),
        (LogFormat.JSON, False, '"message": "no interface; give one"}'),
    ],
)
def test_why_a_service_ends_is_in_its_log_once_it_has_one(
    form: LogFormat, says: bool, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def command() -> None:
        start_log(form)
        if says:
            LOG.info("capturing")
        raise InputError("no interface", "give one")

    assert _end_of(command, monkeypatch, capsys).endswith(expected)


def test_a_program_that_starts_a_service_reads_what_it_knows(capsys: pytest.CaptureFixture[str]) -> None:
    start_log(LogFormat.TEXT)
    log_for_program()
    LOG.info("capturing on lo")
    assert capsys.readouterr().err == "tracer: capturing on lo\n"
    start_log(LogFormat.JSON)
    log_for_program()
    LOG.info("capturing on lo")
    assert json.loads(capsys.readouterr().err)["message"] == "capturing on lo"


@pytest.mark.parametrize("is_journal", [True, False])
def test_the_journal_stamps_lines_itself(tmp_path: Path, is_journal: bool) -> None:
    script = (
        "import logging; from tracer.service_log import *; start_log(LogFormat.TEXT);"
        "logging.getLogger('twintap.agent').info('x')"
    )
    with (tmp_path / "journal").open("w") as journal:
        found = os.fstat(journal.fileno())
        stream = f"{found.st_dev}:{found.st_ino + (not is_journal)}"
        subprocess.run([sys.executable, "-c", script], stderr=journal, env={"JOURNAL_STREAM": stream}, check=True)
    line = (tmp_path / "journal").read_text()
    assert line.endswith("INFO agent: x\n")
    assert line.startswith("INFO") is is_journal
