"""The processes of the service under test: started, stopped by faults, started again; with their output."""

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.processes import ROOT

PATIENCE_S = 120.0


@dataclass(frozen=True)
class Line:
    """What a part said on either stream, by the machine's clock."""

    at: float
    text: str


@dataclass
class Life:
    """One process of a part, by the machine's clock: from when it was ready until it was signalled to end or ended."""

    ready: float
    ended: float | None = None
    how: str = ""
    status: int | None = None


@dataclass
class Part:
    """A process that is to be there all the time. `argv` says what to run now; a line with `ready` says that it works.

    `hurt_until`: until when it may fail for something that was done to it.
    """

    name: str
    argv: Callable[[], Sequence[str]]
    ready: str
    process: subprocess.Popen[str] | None = None
    lines: list[Line] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    hurt_until: float = 0.0
    _ready: threading.Event = field(default_factory=threading.Event)

    def start(self) -> bool:
        """Start it and wait until it works; False if it ended instead."""
        self._ready.clear()
        self.process = subprocess.Popen(
            self.argv(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
        )
        threading.Thread(target=self._listen, args=(self.process,), daemon=True).start()
        deadline = time.monotonic() + PATIENCE_S
        while not self._ready.wait(0.05):
            if self.process.poll() is not None or time.monotonic() > deadline:
                return False
        self.lives.append(Life(time.time()))
        return True

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(Line(time.time(), line.rstrip("\n")))
            if re.search(self.ready, line):
                self._ready.set()

    @property
    def is_up(self) -> bool:
        """Whether its process is there."""
        return self.process is not None and self.process.poll() is None

    def end(self, number: signal.Signals) -> int:
        """Send it a signal that ends it; its exit status."""
        assert self.process is not None
        signalled = time.time()
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE_S)
        if self.lives and self.lives[-1].ended is None:
            self.lives[-1].ended, self.lives[-1].how, self.lives[-1].status = signalled, number.name, status
        return status

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal that does not end it."""
        if self.process is not None and self.is_up:
            self.process.send_signal(number)

    def limit_descriptors(self, free_count: int | None) -> None:
        """Let it open so many more files; None: as many as ever."""
        if self.process is None or not self.is_up:
            return
        pid = self.process.pid
        with contextlib.suppress(OSError):
            _, most = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            numbers = [int(name) for name in os.listdir(f"/proc/{pid}/fd")]
            soft = most if free_count is None else max(numbers) + 1 + free_count
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, most))


@dataclass(frozen=True)
class Disk:
    """A small file system that can be filled."""

    place: Path

    def fill(self) -> None:
        """Fill it to the last byte."""
        with contextlib.suppress(OSError), (self.place / ".ballast").open("wb", buffering=0) as ballast:
            os.posix_fallocate(ballast.fileno(), 0, shutil.disk_usage(self.place).free)
            ballast.seek(0, os.SEEK_END)
            while True:
                ballast.write(bytes(4096))

    def empty(self) -> None:
        """Remove what filled it."""
        (self.place / ".ballast").unlink(missing_ok=True)
