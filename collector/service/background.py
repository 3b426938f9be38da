"""A piece of work that the collector repeats in a thread of its own until it ends."""

import logging
import threading
from collections.abc import Callable

from tracer.errors import TracerError

log = logging.getLogger(__name__)


class Background:
    """Repeats `work` every `seconds`. A failure of the disk or the input is logged once, and the work is tried again:
    a thread that died of it would leave what it does undone without a word.
    """

    def __init__(self, name: str, seconds: float, work: Callable[[], object]) -> None:
        self._name, self._seconds, self._work = name, seconds, work
        self._problem = ""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_stopped(self) -> bool:
        """Whether the work is to end: a long one asks between two steps."""
        return self._stopped.is_set()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the round that is under way."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            try:
                self._work()
            except (OSError, TracerError) as error:
                if self._problem != str(error):
                    log.error("%s: %s", self._name, error)
                self._problem = str(error)
            else:
                self._problem = ""
