"""A shell on a host, through a way to it: it runs the scripts that it is sent, and then becomes what captures there.

All bytes that come are read here, in one thread at a time: the answers of scripts first, then the capture's stream.
A session ends on the host when its standard input ends, so closing it, or losing it, leaves nothing there.
"""

import os
import secrets
import select
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from collector.remote.scripts import LOOP, with_token
from collector.remote.ways import CONNECT_SECONDS, Way
from tracer.errors import ServiceError
from tracer.interrupts import defer_interrupts
from tracer.plain_text import plain

ANSWER_SECONDS = CONNECT_SECONDS + 10
"""Longest time for a script's answer; it takes one round trip and some milliseconds."""
READ_BYTES = 1 << 18
MOST_LINES = 1000
"""Lines of the standard error that are kept."""
MOST_ANSWER_BYTES = 1 << 20

REMEDIES = (
    ("Host key verification failed", "compare its new key with its owner's, then connect once by hand: ssh {target}"),
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", "find out why; then: ssh-keygen -R {target}"),
    ("Permission denied", "a key must open it without a question: ssh-copy-id {target}, or load yours: ssh-add"),
    ("Could not resolve hostname", "check its name, or add it to ~/.ssh/config"),
    ("Connection refused", "check that sshd runs there, and its port in ~/.ssh/config"),
    ("timed out", "check that it runs, and that no firewall is between: {by_hand}"),
    ("No route to host", "check that it runs, and the way to it: {by_hand}"),
    ("not found", "check its name: {by_hand}"),
)
"""What a way's program says, and what to do about it."""


class Session:
    """One host's shell. Not for several threads at a time, but for `send`, `close` and `kill`."""

    def __init__(self, way: Way) -> None:
        self.way = way
        self.token = f"twintap-{secrets.token_hex(8)}"
        self.error_lines: list[str] = []
        self._pending = b""
        self._lock = threading.Lock()
        self._news = threading.Condition()
        with defer_interrupts():
            self.process = subprocess.Popen(
                way.argv(["sh", "-c", LOOP]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C at the terminal is for the command that is recorded
            )
            self._reader = threading.Thread(target=self._read_errors, daemon=True)
            self._reader.start()

    def ask(self, script: str) -> list[str]:
        """The lines that a script prints there. Raises: ServiceError if it does not end in time."""
        end = f"{self.token} end"
        self.run(f"echo {self.token} begin\n{script}\necho {end}\n")
        self.wait_for("begin")
        lines: list[str] = []
        while (line := self._read_line(ANSWER_SECONDS)) != end:
            lines.append(line)
            if sum(map(len, lines)) > MOST_ANSWER_BYTES:
                raise ServiceError(f"{self.way.host} answers without an end", f"try: {self.way.by_hand()}")
        return lines

    def run(self, script: str) -> None:
        """Have a script run; nothing may be sent before it has answered."""
        data = with_token(script, self.token).encode()
        self.send(b"%d\n%s" % (len(data), data))

    def wait_for(self, mark: str) -> None:
        """Read until our line with this mark. Raises: ServiceError if it does not come in time."""
        while self._read_line(ANSWER_SECONDS) != f"{self.token} {mark}":
            pass

    def stream(self) -> Iterator[bytes]:
        """All bytes from here on, as they come, until there are no more."""
        if self._pending:
            yield self._pending
            self._pending = b""
        assert self.process.stdout is not None
        while piece := os.read(self.process.stdout.fileno(), READ_BYTES):
            yield piece

    def send(self, data: bytes) -> None:
        """Send bytes to its standard input; those that nobody reads any more are lost."""
        with self._lock, suppress(BrokenPipeError, ValueError):  # ValueError: it is closed
            assert self.process.stdin is not None
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def wait_for_error_line(self, begins: tuple[str, ...], seconds: float) -> str | None:
        """The first line of the standard error that begins so; None if none came before its end, or in time."""
        due = time.monotonic() + seconds
        with self._news:
            while True:
                for line in self.error_lines:
                    if line.startswith(begins):
                        return line
                left = due - time.monotonic()
                if left <= 0 or not self._reader.is_alive():
                    return None
                self._news.wait(min(left, 0.2))

    def close(self) -> None:
        """Ask it to end: its standard input ends."""
        with self._lock, suppress(BrokenPipeError):
            assert self.process.stdin is not None
            self.process.stdin.close()

    def kill(self) -> None:
        """End the program here; on the host everything ends with the connection."""
        self.process.kill()
        self.process.wait()

    def release(self) -> None:
        """Close what is open of it, after its end. An older ssh that stays for other sessions keeps its errors open."""
        self._reader.join(1)
        open_streams = [self.process.stdout, None if self._reader.is_alive() else self.process.stderr]
        for stream in filter(None, open_streams):
            stream.close()

    def wait(self, seconds: float) -> bool:
        """Wait until it has ended; whether it has."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._reader.join(1)
        return True

    def failure(self) -> ServiceError:
        """Why the way does not lead there, as its program says, and what to do."""
        self.wait(2)
        said = "\n".join(self.error_lines)
        for words, remedy in REMEDIES:
            if words in said:
                target = self.way.target.rpartition("/")[2]
                return ServiceError(
                    f"{self.way.host} cannot be reached: {_line_with(self.error_lines, words)}",
                    remedy.format(target=target, by_hand=self.way.by_hand()),
                )
        last = self.last_words() or f"{self.way.kind} ended with status {self.process.poll()}"
        return ServiceError(f"{self.way.host} cannot be reached: {last}", f"try: {self.way.by_hand()}")

    def last_words(self) -> str:
        """The last line of its standard error, "" if there is none."""
        return next((line for line in reversed(self.error_lines) if line.strip()), "")

    def _read_line(self, seconds: float) -> str:
        due = time.monotonic() + seconds
        assert self.process.stdout is not None
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, due - time.monotonic()))
            if not ready:
                what = f"{self.way.host} does not answer within {seconds:.0f} s"
                raise ServiceError(what, f"try: {self.way.by_hand()}")
            piece = os.read(self.process.stdout.fileno(), READ_BYTES)
            if not piece or len(self._pending) > MOST_ANSWER_BYTES:
                raise self.failure()
            self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode(errors="replace").rstrip("\r")

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                if len(self.error_lines) < MOST_LINES:
                    self.error_lines.append(plain(line.decode(errors="replace").rstrip()))
                self.note_line(self.error_lines[-1])
                self._news.notify_all()

    def note_line(self, line: str) -> None:
        """Called with each line of the standard error; replaced by who wants to know."""


def _line_with(lines: list[str], words: str) -> str:
    return next(line for line in lines if words in line)
