"""Shows the progress of a run in one line of a terminal, which is rewritten."""

import sys
import time
from typing import TextIO

from storage_cluster.bench.model import Stage
from storage_cluster.bench.results.figures import text_ms
from storage_cluster.bench.results.recorder import Recorder

_CLEAR_LINE = "\r\x1b[K"


class Progress:
    """Shows a stage's counts and its current rate; writes nothing if the stream is no terminal."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self._shown = stream.isatty()
        self._last = (time.monotonic(), 0)

    def __call__(self, stage: Stage, recorder: Recorder) -> None:
        """Write one line about the stage's progress."""
        if not self._shown:
            return
        total = recorder.tally.total(key for key in recorder.tally.figures if key.stage == stage.name)
        done, now = total.operations_count + total.outside_count, time.monotonic()
        rate = max(done - self._last[1], 0) / max(now - self._last[0], 1e-9)
        self._last = (now, done)
        self._stream.write(
            f"{_CLEAR_LINE}{stage.name}: {done:,} operations, {rate:,.0f}/s, {total.failures_count:,} failed,"
            f" {total.retries_count:,} retries, 99 % within {text_ms(total.response.percentile_ns(99.0), ',.1f')} ms"
        )
        self._stream.flush()

    def end(self) -> None:
        """Clear the line."""
        if self._shown:
            self._stream.write(_CLEAR_LINE)
            self._stream.flush()
