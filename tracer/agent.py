"""The agent: one capture of this host, from opening its interfaces to the last segment.

The core captures in a thread of its own; here are what it is told, the signals that stop it, and what the operator
reads.
"""

import platform
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import FrameType

from tracer import _core
from tracer.errors import InputError, ResourceError
from tracer.filters import Filter, compile_filter
from tracer.segments import next_number, rescue_partials

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

WAIT_NS = 50_000_000
"""How long a stop signal waits at most before it is seen."""


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """What to capture on this host, and how."""

    interfaces: tuple[str, ...]
    host: str
    payload: str = "http"  # none, http, or a number of bytes
    snaplen: int = 0  # bytes of a packet; 0 = what `payload` needs
    ring_bytes: int = 32 << 20  # of each interface
    segment_bytes: int = 16 << 20
    segment_age_ns: int = 1_000_000_000
    expression: str = ""  # as for tcpdump; empty = all TCP


@dataclass(frozen=True, slots=True)
class CaptureCounts:
    """Of a capture so far."""

    packets_count: int  # written
    ignored_count: int  # seen, but of another host or not TCP
    dropped_count: int  # lost because the ring was full
    segments_count: int
    bytes_count: int  # in whole segments


def run_capture(
    options: CaptureOptions,
    folder: Path,
    *,
    on_start: Callable[[], None],
    on_notice: Callable[[str], None],
    stop_requested: Callable[[], bool] | None = None,
) -> CaptureCounts:
    """Capture into a folder until SIGINT or SIGTERM, or until an error.

    Arguments: `on_start` is called when every interface is captured, `on_notice` with each line for the operator;
        `stop_requested` is asked about twenty times a second.
    Raises: PrivilegeError, ResourceError, InputError from opening; ResourceError when the disk fills or all interfaces
        are removed. What was written until then is kept.
    """
    for line in prepare_folder(folder, options.host):
        on_notice(line)
    with _stop_signals() as signal_came:
        capture = start_capture(options, folder)
        on_start()
        while not capture.wait(WAIT_NS):
            if signal_came() or (stop_requested is not None and stop_requested()):
                capture.stop()
            for line in capture.take_notices():
                on_notice(line)
    counts = CaptureCounts(*capture.counts())
    on_notice(summary(counts, folder))
    capture.raise_error()
    return counts


def prepare_folder(folder: Path, host: str) -> list[str]:
    """Make a folder ready for the host's segments; lines for the operator on what an earlier capture left there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return rescue_partials(folder, host)
    except OSError as error:
        raise ResourceError(
            f"cannot write to {folder}: {error.strerror}", "give a directory that can be written to"
        ) from None


def start_capture(options: CaptureOptions, folder: Path) -> _core.Capture:
    """Open the interfaces and start the core's thread, which writes segments into `folder`."""
    if sys.platform != "linux":
        raise InputError(f"live capture needs Linux, this is {platform.system()}", "replay captures made with tcpdump")
    snaplen = options.snaplen or _core.payload_snaplen(options.payload)
    compiled = compile_filter(options.expression, snaplen) if options.expression else Filter("", [], None)
    return _core.Capture(
        list(options.interfaces),
        str(folder),
        options.host,
        f"twintap-agent {version('twintap')}",
        f"{platform.system()} {platform.release()}",
        payload=options.payload,
        snaplen=snaplen,
        ring_bytes=options.ring_bytes,
        segment_bytes=options.segment_bytes,
        segment_age_ns=options.segment_age_ns,
        first_number=next_number(folder, options.host),
        expression=compiled.expression,
        ethernet_filter=compiled.ethernet,
        raw_ip_filter=compiled.raw_ip,
    )


def summary(counts: CaptureCounts, folder: Path) -> str:
    """Return a capture in one line."""
    parts = [f"{counts.packets_count:,} packets", _drops(counts.dropped_count)]
    if counts.ignored_count:
        parts.append(f"{counts.ignored_count:,} not TCP or not for this host")
    parts.append(f"{counts.bytes_count:,} bytes in {counts.segments_count:,} segments in {folder}")
    return ", ".join(parts)


def _drops(dropped_count: int) -> str:
    return f"{dropped_count:,} dropped (raise --ring-mib)" if dropped_count else "none dropped"


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Within it, stop signals are only noted; yields a function that says whether one came."""
    requests: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        requests.append(number)

    earlier = {number: signal.signal(number, note) for number in STOP_SIGNALS}
    try:
        yield lambda: bool(requests)
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
