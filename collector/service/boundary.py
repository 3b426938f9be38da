"""The service boundary: a stage that raises ends the analysis of one session, not the collector.

What is no operator's error is ours (`tracer.errors`), and elsewhere it is never caught: a command ends with it. The
collector's service has agents and sessions that have nothing to do with the one whose packets broke a stage, so here,
and nowhere else, everything is caught: exceptions, and panics of the core and of Polars, which are no `Exception`. It
becomes an `AnalysisError` with one sentence that names the session, the defect and its place, which the caller writes
to the log (`log_failure`). What is meant to end the process (Ctrl-C, exit) passes.

Not handled: what ends the process itself, such as the kernel's out-of-memory killer.
"""

import errno
import logging
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

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


def contained(session: str, work: Callable[[], Made]) -> Made:
    """What `work` returns; of whatever it raises that the operator cannot mend, an `AnalysisError`.

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


def log_failure(error: TracerError, times: int = 1) -> None:
    """Write why an analysis made no trace to the service's log; `times`, how often that session's has failed so far."""
    _log.error("%s%s", error, f" ({times:,} times)" if times > 1 else "")


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
