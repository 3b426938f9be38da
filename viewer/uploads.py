"""Receives captures that are dropped on the page, piece by piece, and builds a trace from them.

They are stored in a temporary folder with limits on the number of files and bytes, which is removed with the viewer.
Names of files are kept as texts and never become paths. `tracer replay` builds the trace in a separate process, so that
a bad capture cannot end the viewer. That process is ended if it exceeds its limits of memory and time; it also limits
the expansion of compressed files. An error is shown as one sentence.
"""

import contextlib
import itertools
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from msgspec import Struct, field

from collector.queries import TraceView, describe_capture, open_trace
from tracer.errors import InputError, TracerError
from tracer.scratch import UPLOADS_PREFIX, make_temporary, release

PIECE_BYTES = 4 << 20
"""A piece of a file, which one request carries."""
MOST_BYTES = 4 << 30
MOST_FILES = 100
MOST_MEMORY_BYTES = 4 << 30
MOST_SECONDS = 3_600.0
POLL_SECONDS = 0.1
LONGEST_ERROR = 10_000
"""Characters at the end of a command's standard error that are read."""
LONGEST_NAME = 64


class Received(Struct, frozen=True):
    """The state of an uploaded file: the host that it seems to be captured on, or in `error` why it is refused."""

    number: int
    name: str
    bytes_count: int
    host: str = ""
    packets_count: int = 0
    error: str = ""


class Making(Struct, frozen=True):
    """The state of the analysis of uploaded files: `state` is idle, running, done or failed."""

    state: str = "idle"
    text: str = ""


class _Incoming(Struct):
    name: str
    path: Path
    bytes_count: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Uploads:
    """The files uploaded to one viewer. Safe to use from several threads; `close` removes them all."""

    def __init__(
        self,
        done: Callable[[TraceView], None],
        most_bytes: int = MOST_BYTES,
        most_memory_bytes: int = MOST_MEMORY_BYTES,
        most_seconds: float = MOST_SECONDS,
    ) -> None:
        self._done, self._most_bytes = done, most_bytes
        self._most_memory_bytes, self._most_seconds = most_memory_bytes, most_seconds
        self._folder = make_temporary(UPLOADS_PREFIX)
        self._files: dict[int, _Incoming] = {}
        self._numbers, self._traces = itertools.count(1), itertools.count(1)
        self._lock = threading.Lock()
        self._making = Making()
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self, name: str) -> Received:
        """Expect a file of that name."""
        shown = _plain(name)[:200] or "a file without a name"
        with self._lock:
            if len(self._files) >= MOST_FILES:
                return Received(0, shown, 0, error=f"no more than {MOST_FILES} files are taken at once; remove some")
            number = next(self._numbers)
            self._files[number] = _Incoming(shown, self._folder / f"{number}.capture")
            self._files[number].path.touch()
        return Received(number, shown, 0)

    def add(self, number: int, offset: int, piece: IO[bytes], length: int) -> Received:
        """Append the next piece of a file, which belongs at `offset`."""
        file = self._files.get(number)
        if file is None:
            return Received(number, "", 0, error="this file is not expected; add it again")
        with file.lock:
            if offset != file.bytes_count or length > PIECE_BYTES:
                error = "a piece came out of order; add the file again"
                return Received(number, file.name, file.bytes_count, error=error)
            if self._bytes_count() + length > self._most_bytes:
                room = f"{self._most_bytes / (1 << 30):.3g} GiB"
                error = f"all files together may hold {room}; use `tracer replay` on the machine that has them"
                return Received(number, file.name, file.bytes_count, error=error)
            try:
                with file.path.open("ab") as place:
                    shutil.copyfileobj(piece, place, 1 << 20)
                file.bytes_count = file.path.stat().st_size
            except OSError as refused:
                return Received(number, file.name, file.bytes_count, error=f"it cannot be kept ({refused.strerror})")
        return Received(number, file.name, file.bytes_count)

    def end(self, number: int) -> Received:
        """Finish a file: the host that it was captured on, or why it is refused."""
        file = self._files.get(number)
        if file is None:
            return Received(number, "", 0, error="this file is not expected; add it again")
        try:
            description = describe_capture(file.path, file.name)
        except InputError as error:
            self.drop(number)
            return Received(number, file.name, file.bytes_count, error=str(error))
        return Received(number, file.name, file.bytes_count, description.host, description.packets_count)

    def drop(self, number: int) -> None:
        """Forget a file."""
        with self._lock:
            file = self._files.pop(number, None)
        if file is not None:
            file.path.unlink(missing_ok=True)

    def make(self, hosts: Mapping[int, str]) -> Making:
        """Begin to analyse the files of these hosts. One analysis at a time."""
        files = [(self._files.get(number), host.strip()) for number, host in sorted(hosts.items())]
        trouble = _trouble([(file.name if file else None, host) for file, host in files])
        with self._lock:
            if trouble:
                return Making("failed", trouble)
            if self._making.state == "running":
                return self._making
            self._making = Making("running", "putting packets together…")
        given = {f"{host}={file.path}": file for file, host in files if file is not None}
        threading.Thread(target=self._make, args=(given,), daemon=True).start()
        return self._making

    def making(self) -> Making:
        """The state of the analysis."""
        return self._making

    def close(self) -> None:
        """Remove all files, and end the analysis that runs."""
        if (process := self._process) is not None:  # another thread sets it to None once it has ended
            process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
        release(self._folder)

    def _make(self, given: Mapping[str, _Incoming]) -> None:
        trace = self._folder / "traces" / f"uploaded-{next(self._traces)}"
        trace.parent.mkdir(exist_ok=True)
        argv = [sys.executable, "-m", "tracer", "replay", "-o", str(trace), "--", *given]  # a host may begin with `-`
        with tempfile.TemporaryFile("w+", errors="replace") as errors:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
            too_much = wait_within(self._process, self._most_memory_bytes, self._most_seconds)
            errors.seek(0)
            last = errors.read()[-LONGEST_ERROR:]
        failed, self._process = self._process.returncode, None
        if failed:
            shutil.rmtree(trace, ignore_errors=True)
            for left in trace.parent.glob(f".{trace.name}.*"):  # of one that was killed
                shutil.rmtree(left, ignore_errors=True)
            self._making = Making("failed", too_much or _error_sentence(last, given))
            return
        try:
            self._done(open_trace(str(trace)))
            self._making = Making("done", "")
        except TracerError as error:
            self._making = Making("failed", str(error))

    def _bytes_count(self) -> int:
        return sum(file.bytes_count for file in list(self._files.values()))


def wait_within(process: subprocess.Popen[bytes], most_memory_bytes: int, most_seconds: float) -> str:
    """Wait for a process, and end it above a limit of resident memory or time; returns the limit exceeded, or ""."""
    deadline_s = time.monotonic() + most_seconds
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SECONDS)
            return ""
        too_much = ""
        if _resident_bytes(process.pid) > most_memory_bytes:
            too_much = f"making the trace takes more than {most_memory_bytes / (1 << 30):.3g} GiB of memory"
        elif time.monotonic() > deadline_s:
            too_much = f"making the trace takes more than {most_seconds:,.0f} s"
        if too_much:
            process.kill()
            process.wait()
            return f"{too_much}; use `tracer replay` on a machine that has more"


def _resident_bytes(pid: int) -> int:
    """0 if it has ended."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    return 0


def _trouble(files: list[tuple[str | None, str]]) -> str:
    """Why no trace can be made of these; nothing if it can."""
    if not files:
        return "add the captures of at least one host"
    for name, host in files:
        if name is None:
            return "one of the files is not here any more; add it again"
        if not host or len(host) > LONGEST_NAME or host != _plain(host) or set(host) & set("/=\\"):
            return f"give {name} a host's name of up to {LONGEST_NAME} characters, without / and ="
    return ""


def _plain(text: str) -> str:
    """The text without control characters and without characters that reverse the order of letters."""
    return "".join(sign for sign in text if sign.isprintable()).strip()


def _error_sentence(errors: str, files: Mapping[str, _Incoming]) -> str:
    """The last line that a command wrote as an error, with the uploaded names in the place of its paths."""
    line = (errors.strip().splitlines() or [""])[-1]
    if not line.startswith("tracer: "):
        return "the captures could not be analysed, which is a defect; `tracer replay` with these files prints more"
    line = line.removeprefix("tracer: ")
    for file in files.values():
        line = line.replace(str(file.path), file.name)
    return line
