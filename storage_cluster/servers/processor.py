"""Models the processor of a host: for how long a request keeps a server process from doing anything else.

The servers of the bundled store do the same as Swift's at a fraction of the processor time. Where a topology says what
a request costs on a certain machine (`[host.processor]`), a server process stands still for that long before it handles
one: it accepts no connection and reads no answer meanwhile, as an eventlet worker that runs Python for one request. So
the queues that build up before it are real ones: the kernel's listen queue, the buffers of connections.

    listen queue ──▶ accept ──▶ [ what is missing to a request's time: the process stands still ] ──▶ handler ──▶ answer

Theory. A request costs a time of one core, of which our own process has used a part since the last one; the rest is
spent standing still. So does its body, by its length, once it is read; own use counts once, for the body first. The
host's cores are modelled as one that is as fast as all of them: at saturation that is the same, and a single request is
done sooner than on one core of several, so times at low concurrency are a lower bound. A process that has used more
than requests and bodies cost does not stand still. Answers' bodies cost nothing beside our own use.

`logs/HOST/SERVICE.processor` holds the time so far that all the host's cores were busy with its requests, both parts
(ns, little-endian); whoever samples reads it. A core of this machine counts as one of the modelled host's.
"""

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

SUFFIX = ".processor"
_LAYOUT = struct.Struct("<q")


class Processor:
    """The modelled processor of one server process."""

    def __init__(
        self,
        cores: int,
        request_s: float,
        file: Path,
        sleep: Callable[[float], None] = time.sleep,
        used_ns: Callable[[], int] = time.process_time_ns,
        *,
        s_per_byte: float = 0.0,
    ) -> None:
        """`request_s`: the time of one core that a request takes; `used_ns`: what this process has used so far.

        `s_per_byte`: that time for each byte of its body.
        """
        self._cores = cores
        self._request_ns = round(request_s * 1e9)
        self._ns_per_byte = s_per_byte * 1e9
        self._sleep = sleep
        self._now_used_ns = used_ns
        self._used_ns = used_ns()
        self._busy_ns = 0
        self._descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    def spend(self) -> None:
        """Stand still for what is missing to a request's time."""
        own_ns = self._now_used_ns() - self._used_ns
        rest_ns = max(self._request_ns - own_ns, 0)
        self._stand_still(rest_ns)
        self._used_ns = self._now_used_ns()
        self._note_busy(own_ns + rest_ns)

    def spend_on_body(self, body_bytes: int) -> None:
        """Stand still for what is missing to the time of a body that was read."""
        cost_ns = round(body_bytes * self._ns_per_byte)
        own_ns = min(self._now_used_ns() - self._used_ns, cost_ns)
        self._stand_still(cost_ns - own_ns)
        self._used_ns += own_ns
        self._note_busy(cost_ns)

    def _stand_still(self, rest_ns: int) -> None:
        if rest_ns:
            self._sleep(rest_ns / self._cores / 1e9)

    def _note_busy(self, spent_ns: int) -> None:
        self._busy_ns += spent_ns // self._cores
        os.pwrite(self._descriptor, _LAYOUT.pack(self._busy_ns), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def busy_ns(logs_dir: Path) -> int:
    """The time that all cores of a host were busy, for all its server processes together; 0 without a modelled one."""
    contents = (file.read_bytes() for file in logs_dir.glob(f"*{SUFFIX}"))
    return sum(_LAYOUT.unpack(content)[0] for content in contents if len(content) == _LAYOUT.size)
