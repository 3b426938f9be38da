"""The service boundary: an exception in a stage ends the analysis of one session, not the collector.

An error that the operator cannot correct is a defect of ours (`tracer.errors`); elsewhere such errors are never caught,
and a command ends with them. But the collector serves other agents and sessions, too. So here, and only here,
everything is caught: exceptions, and panics of the core and of Polars, which are no `Exception`. They become an
`AnalysisError` with one sentence that names the session, the defect and its place; the caller writes it to the log
(`log_failure`). Exceptions that end the process (Ctrl-C, exit) pass.

Not handled: the end of the process itself, for example by the kernel's out-of-memory killer.
"""

import asyncio
import errno
import logging
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from collector.trace.wire_text import text_from_wire
from tracer.errors import ServiceError, TracerError

Made = TypeVar("Made")

ROOT = Path(__file__).parents[2]
LONGEST_SENTENCE = 300
REMEDY = "the captures are kept; please report this"
SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
SHORT_REMEDY = "the captures are kept; let the collector have more open files or memory"
_ENDS_THE_PROCESS = (KeyboardInterrupt, SystemExit, GeneratorExit)
_log = logging.getLogger("twintap.collector")


class AnalysisError(ServiceError):
    """A stage of the analysis raised: a defect of ours, contained to one session."""


def contain_failures(session: str, work: Callable[[], Made]) -> Made:
    """The result of `work`; errors that the operator cannot correct become an `AnalysisError`.

    Raises: `AnalysisError`; `TracerError` as `work` does.
    """
    try:
        return work()
    except TracerError:
        raise
    except BaseException as error:  # the only such place: see above
        if isinstance(error, _ENDS_THE_PROCESS):
            raise
        what = f"the analysis of session {session} failed"
        if isinstance(error, OSError) and error.errno in SHORT:
            raise AnalysisError(f"{what}: {os.strerror(error.errno)}", SHORT_REMEDY) from error
        raise AnalysisError(f"{what}: {_sentence(error)}", REMEDY) from error


def log_failure(error: TracerError, session: str, times: int = 1) -> None:
    """Write why an analysis made no trace to the service's log; `times`, how often that session's has failed so far."""
    suffix = f" ({times:,} times)" if times > 1 else ""
    _log.error("%s%s", error, suffix, extra={"session": session, "count": times})


def note_loop_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What the event loop calls with an error that nobody awaits: one line for a connection that could not be accepted
    for want of descriptors or memory, which asyncio tries again after a second; else what asyncio writes."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in SHORT:
        _log.error("no connections are accepted for a second: %s; %s", os.strerror(error.errno), SHORT_REMEDY)
    else:
        loop.default_exception_handler(context)


def _sentence(error: BaseException) -> str:
    """Kind and text of an error, and where it was raised, as one line that is safe to show."""
    text = text_from_wire(" ".join(str(error).split()).encode("utf-8", "surrogatepass"))
    if len(text) > LONGEST_SENTENCE:
        text = text[:LONGEST_SENTENCE] + "…"
    return f"{type(error).__name__}: {text} ({_place(error)})"


def _place(error: BaseException) -> str:
    """The innermost line of ours that it passed: `collector/clocks/solve.py:12`."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(ROOT)]
    return f"{Path(ours[-1].filename).relative_to(ROOT)}:{ours[-1].lineno}" if ours else "place unknown"
