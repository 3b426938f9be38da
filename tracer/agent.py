"""The agent: one capture of this host, from opening its interfaces to the last segment.

The core captures in a thread of its own; this module has its settings, the signals that stop it, and its messages to
the operator.
"""

import os
import platform
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from types import FrameType

from tracer import _capture, secret_rules
from tracer.cpu_budget import CpuBudget, owners_parts
from tracer.deliveries import Endpoint, OwnDeliveries
from tracer.errors import DiskFullError, InputError, ResourceError, TracerError
from tracer.filters import Filter, compile_filter
from tracer.segments import next_number, rescue_partials
from tracer.service_log import Notice
from tracer.spool import DISK_FULL

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

AGAIN_SECONDS = 0.3
"""Between two stop signals that are two."""
WAIT_SECONDS = 0.2
"""How often what is not a signal is looked at: another reason to stop, the end of the capture, its notices."""
STOP_NS = 50_000_000
"""How long a capture that was stopped is waited for at a time."""


@dataclass(frozen=True, slots=True)
class SkewedClock:
    """The error to put on stamps, for tests: `offset_ns` ahead from `since_ns` on, and gaining `drift_ppb`."""

    offset_ns: int = 0
    drift_ppb: int = 0
    since_ns: int = 0

    def stamp(self, host_ns: int) -> int:
        """The skewed clock's reading when the true one is `host_ns`; the core does the same for packets."""
        elapsed_ns = host_ns - self.since_ns
        return host_ns if elapsed_ns < 0 else host_ns + self.offset_ns + elapsed_ns * self.drift_ppb // 1_000_000_000


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """What to capture on this host, and how."""

    interfaces: tuple[str, ...]
    host: str
    stem: str = ""  # of segments' names; empty = the host's name
    payload: str = "heads"  # none, heads, or a number of bytes
    snaplen: int = 0  # bytes of a packet; 0 = what `payload` needs
    ring_bytes: int = 32 << 20  # of each interface that is named
    rings_bytes: int = 96 << 20  # of all, also of those that fit a pattern
    segment_bytes: int = 16 << 20
    segment_age_ns: int = 1_000_000_000
    expression: str = ""  # as for tcpdump; empty = all TCP
    clock_error: SkewedClock = SkewedClock()
    with_owners: bool = True  # look for the processes of connections
    cpu_percent: float = 0  # of one core, that the agent may use; 0 = no limit
    timestamps: str = "software"  # or "hardware"


@dataclass(frozen=True, slots=True)
class CaptureCounts:
    """Of a capture so far."""

    packets_count: int = 0  # written
    foreign_count: int = 0  # seen and not kept: for another host, flooded by a switch
    other_count: int = 0  # seen and not kept: not TCP
    dropped_count: int = 0  # lost because the ring was full
    segments_count: int = 0
    bytes_count: int = 0  # in whole segments
    left_out_count: int = 0  # packets of connections that the CPU budget did not allow to keep


def add_counts(one: CaptureCounts, other: CaptureCounts) -> CaptureCounts:
    """The counts of two captures together."""
    return CaptureCounts(*(getattr(one, each.name) + getattr(other, each.name) for each in fields(CaptureCounts)))


def run_capture(
    options: CaptureOptions,
    folder: Path,
    *,
    on_start: Callable[[], None],
    on_notice: Notice,
    on_capture: Callable[[_capture.Capture], None] | None = None,
    stop_requested: Callable[[], bool] | None = None,
    first_number: int | None = None,
    deliveries: OwnDeliveries | None = None,
    signals: "StopSignals | None" = None,
    budget: CpuBudget | None = None,
) -> CaptureCounts:
    """Capture into a folder until SIGINT or SIGTERM, or until an error.

    Arguments: `on_start` is called when every interface is captured, `on_capture` with what then runs, `on_notice` with
        each line for the operator;
        `stop_requested` is asked every `WAIT_SECONDS`; `first_number` of the segments, if it is not the one after
        those in the folder; `deliveries`, whose packets are not recorded; `signals`, if who calls notes them;
        `budget`, if it is shared with other captures of this process.
    Raises: PrivilegeError, ResourceError, InputError from opening; DiskFullError when the disk fills,
        ResourceError when all interfaces are removed. What was written until then is kept.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    stem = options.stem or options.host
    budget = budget or CpuBudget(options.cpu_percent, options.payload)
    for line in prepare_folder(folder, stem):
        on_notice(line)
    with nullcontext(signals) if signals else StopSignals().catch() as came:
        try:
            number = first_number or next_number(folder, stem)
            excluded = deliveries.endpoints if deliveries else ()
            capture = start_capture(options, folder, number, excluded, budget.initial_share)
        except TracerError:
            for path in made:
                with suppress(OSError):
                    path.rmdir()
            raise
        if deliveries is not None:
            deliveries.attach(capture.exclude)
        if on_capture is not None:
            on_capture(capture)
        on_start()
        while not capture.wait(0):
            if came.count() or (stop_requested is not None and stop_requested()):
                capture.stop()
                capture.wait(STOP_NS)
            else:
                came.sleep(WAIT_SECONDS)
            for line in (*budget.step(capture), *capture.take_notices()):
                on_notice(line)
    counts = CaptureCounts(*capture.counts())
    on_notice(summary(counts, folder))
    capture.raise_error()
    return counts


def prepare_folder(folder: Path, stem: str) -> list[str]:
    """Make a folder ready for segments with that stem; lines for the operator on what an earlier capture left there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return rescue_partials(folder, stem)
    except OSError as error:
        what = f"cannot write to {folder}: {error.strerror}"
        if error.errno in DISK_FULL:
            raise DiskFullError(what, "free some space, or give another directory") from None
        raise ResourceError(what, "give a directory that can be written to") from None


def start_capture(
    options: CaptureOptions,
    folder: Path,
    first_number: int,
    excluded: Iterable[Endpoint] = (),
    kept: tuple[int, int | None] | None = None,
) -> _capture.Capture:
    """Open the interfaces and start the core's thread, which writes segments into `folder`.

    Packets to and from `excluded` are not recorded, whatever the filter says. `kept`, what to keep at first under a CPU
    budget: depth and bytes of heads.
    """
    if sys.platform != "linux":
        raise InputError(f"live capture needs Linux, this is {platform.system()}", "replay captures made with tcpdump")
    snaplen = options.snaplen or _capture.payload_snaplen(options.payload)
    compiled = compile_filter(options.expression, snaplen) if options.expression else Filter("", [], None)
    return _capture.Capture(
        list(options.interfaces),
        str(folder),
        options.host,
        f"twintap-agent {version('twintap')}",
        f"{platform.system()} {platform.release()}",
        payload=options.payload,
        snaplen=snaplen,
        ring_bytes=options.ring_bytes,
        rings_bytes=options.rings_bytes,
        segment_bytes=options.segment_bytes,
        segment_age_ns=options.segment_age_ns,
        first_number=first_number,
        stem=options.stem or options.host,
        expression=compiled.expression,
        ethernet_filter=compiled.ethernet,
        raw_ip_filter=compiled.raw_ip,
        excluded=list(excluded),
        clock_error=(options.clock_error.offset_ns, options.clock_error.drift_ppb, options.clock_error.since_ns),
        secrets=secret_rules.rules(),
        owners=options.with_owners,
        owners_parts=owners_parts(options.cpu_percent),
        kept=kept,
        timestamps=options.timestamps,
    )


def summary(counts: CaptureCounts, folder: Path) -> str:
    """Return a capture in one line."""
    parts = [f"{counts.packets_count:,} packets", _drops(counts.dropped_count)]
    if counts.foreign_count:
        parts.append(f"{counts.foreign_count:,} for other hosts not kept")
    if counts.other_count:
        parts.append(f"{counts.other_count:,} not TCP not kept")
    if counts.left_out_count:
        parts.append(f"{counts.left_out_count:,} left out by the CPU budget")
    parts.append(f"{counts.bytes_count:,} bytes in {counts.segments_count:,} segments in {folder}")
    return ", ".join(parts)


def _drops(dropped_count: int) -> str:
    return f"{dropped_count:,} dropped (raise --ring-mib)" if dropped_count else "none dropped"


class StopSignals:
    """The stop signals that came. Those that come at once count as one: `timeout` sends its to the process and to its
    group."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._came_at = clock, list[float]()
        self._wakes, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def note(self, _number: int, _frame: FrameType | None) -> None:
        """One came."""
        if not self._came_at or self._clock() - self._came_at[-1] >= AGAIN_SECONDS:
            self._came_at.append(self._clock())

    def count(self) -> int:
        """How many came."""
        return len(self._came_at)

    def sleep(self, seconds: float) -> None:
        """Sleep, until a signal comes at most."""
        if select.select([self._wakes], [], [], seconds)[0]:
            with suppress(BlockingIOError):
                os.read(self._wakes, 4096)

    @contextmanager
    def catch(self) -> Iterator["StopSignals"]:
        """Within it, stop signals are only noted."""
        hangup_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # by nohup
        wanted = [number for number in STOP_SIGNALS if not (hangup_ignored and number == signal.SIGHUP)]
        earlier_wake = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        earlier = {number: signal.signal(number, self.note) for number in wanted}
        try:
            yield self
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(earlier_wake)
            os.close(self._wake)
            os.close(self._wakes)
