"""The log of a service: one line for each event, with its time in UTC, on standard error.

    2026-11-26T17:20:05.123Z WARNING collector: trigger fired for session shop: …
    {"time": "2026-11-26T17:20:05.123Z", "level": "warning", "logger": "twintap.collector", "message": …, "session": …}

It is the standard library's `logging`: modules log to `twintap.COMPONENT` and give what an event is about as `extra`,
by the names in `FIELDS`; the JSON form has those that a record has. Every text is written without secrets: by the rules
(`tracer.secret_rules`), and without the exact values that were given to `hide`. A message is one line, whatever a peer
put into it (`tracer.plain_text`).

Not handled: times of a text line under systemd, whose journal has its own (`JOURNAL_STREAM`, systemd.exec(5)).
"""

import json
import logging
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol, TextIO

from tracer.plain_text import plain
from tracer.secret_rules import without_secrets

ROOT = "twintap"
FIELDS = ("session", "host", "incarnation", "segment", "window", "trigger", "address", "reason", "count")
"""What an event may be about."""
SHORTEST_HIDDEN_LEN = 8
"""A shorter secret would be found by chance in ordinary words."""


class LogFormat(StrEnum):
    """How lines are written."""

    TEXT = "text"
    JSON = "json"
    PLAIN = "plain"  # `tracer: MESSAGE`, for the program that started this one


class Notice(Protocol):
    """Takes one event of a service for its operator."""

    def __call__(self, line: str, level: int = logging.INFO, /, **fields: object) -> None:
        """`fields`: what it is about, by the names in `FIELDS`."""


def start_log(form: LogFormat) -> None:
    """From now on this process is a service, and what it logs is written in this form. May be called again."""
    handler = _Handler(form)
    for old in _handlers():
        logging.getLogger().removeHandler(old)
    logging.getLogger().addHandler(handler)
    logging.getLogger(ROOT).setLevel(logging.INFO)
    logging.captureWarnings(True)


def log_for_program() -> None:
    """A program reads the lines of this one: text becomes `tracer: MESSAGE`, which it knows."""
    if any(each.form is LogFormat.TEXT for each in _handlers()):
        start_log(LogFormat.PLAIN)


def log_end(line: str) -> bool:
    """Log why the service ends; False if it is none, or none yet: then a person reads the line."""
    if not any(each.takes_end() for each in _handlers()):
        return False
    logging.getLogger(ROOT).error("%s", line)
    return True


def notice_to(logger: logging.Logger, **known: object) -> Notice:
    """A `Notice` that logs there, with fields that are the same for all events."""

    def note(line: str, level: int = logging.INFO, /, **fields: object) -> None:
        logger.log(level, "%s", line, extra={**known, **fields})

    return note


def hide(secret: str) -> None:
    """From now on write no line with this secret in it, such as a token; `x` stands in its place."""
    if len(secret) >= SHORTEST_HIDDEN_LEN and secret not in _hidden:
        _hidden.append(secret)


_hidden: list[str] = []


class _Handler(logging.StreamHandler[TextIO]):
    """Writes to what is standard error by then."""

    def __init__(self, form: LogFormat) -> None:
        super().__init__(sys.stderr)
        self.form = form
        self.has_written = False
        self.setFormatter(formatter(form, has_time=not _is_journal(sys.stderr)))

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        self.stream, self.has_written = sys.stderr, True
        super().emit(record)

    def takes_end(self) -> bool:
        """Whether the end of the service is a line of its log, not one for the person who has just started it."""
        return self.form is LogFormat.JSON or (self.form is LogFormat.TEXT and self.has_written)


def _handlers() -> list[_Handler]:
    return [each for each in logging.getLogger().handlers if isinstance(each, _Handler)]


def formatter(form: LogFormat, *, has_time: bool = True) -> logging.Formatter:
    """Makes lines of records. Arguments: `has_time`, whether text has it."""
    match form:
        case LogFormat.JSON:
            return _JsonFormatter()
        case LogFormat.PLAIN:
            return _PlainFormatter()
    return _TextFormatter(has_time)


class _PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """`tracer: MESSAGE`."""
        return "\n".join((f"tracer: {_message(record)}", *_traceback(self, record)))


class _TextFormatter(logging.Formatter):
    def __init__(self, has_time: bool) -> None:
        super().__init__()
        self._has_time = has_time

    def format(self, record: logging.LogRecord) -> str:
        """`TIME LEVEL COMPONENT: MESSAGE`."""
        component = record.name.removeprefix(f"{ROOT}.")
        line = f"{record.levelname} {component}: {_message(record)}"
        line = f"{_time(record)} {line}" if self._has_time else line
        return "\n".join((line, *_traceback(self, record)))


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """One object."""
        found: dict[str, str | int | None] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        found |= {name: _value(record.__dict__[name]) for name in FIELDS if name in record.__dict__}
        if trace := list(_traceback(self, record)):
            found["traceback"] = "\n".join(trace)
        return json.dumps(found, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    """ISO 8601 in UTC, with ms."""
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    return _safe(record.getMessage())


def _value(value: object) -> str | int | None:
    return value if value is None or isinstance(value, int) else _safe(str(value))


def _safe(text: str) -> str:
    """A text on one line, without secrets."""
    text = without_secrets(text)
    for secret in _hidden:
        text = text.replace(secret, "x" * len(secret))
    return plain(text)


def _traceback(by: logging.Formatter, record: logging.LogRecord) -> Iterator[str]:
    """The lines of an exception."""
    if record.exc_info:
        yield from map(_safe, by.formatException(record.exc_info).splitlines())


def _is_journal(stream: object) -> bool:
    """Whether a stream goes to systemd's journal, which stamps lines itself."""
    device, _, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        found = os.fstat(stream.fileno())  # type: ignore[attr-defined]
    except (OSError, AttributeError, ValueError):
        return False
    return (device, inode) == (str(found.st_dev), str(found.st_ino))
