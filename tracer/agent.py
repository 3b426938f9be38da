"""The agent: one capture of this host, from opening its interfaces to the last segment.

The core captures in a thread of its own; here are what it is told, the signals that stop it, and what the operator
reads.
"""

import platform
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from types import FrameType

from tracer import _core
from tracer.deliveries import Endpoint, OwnDeliveries
from tracer.errors import InputError, ResourceError, ServiceError, TracerError
from tracer.filters import Filter, compile_filter
from tracer.segments import next_number, rescue_partials
from tracer.shipping import CollectorClient, CollectorDownError, Shipper, ShippingThread, check_url
from tracer.spool import Destination, open_spools

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

WAIT_NS = 50_000_000
"""How long a stop signal waits at most before it is seen."""

SHIPPED_SEGMENT_AGE_NS = 500_000_000
"""Of segments for a collector: half of what a live view may be late (2 s) is left to ship and analyse them."""


@dataclass(frozen=True, slots=True)
class ClockError:
    """How wrong the stamps shall be, for tests: `offset_ns` ahead from `since_ns` on, and gaining `drift_ppb`."""

    offset_ns: int = 0
    drift_ppb: int = 0
    since_ns: int = 0

    def stamp(self, host_ns: int) -> int:
        """What the wrong clock says when the right one says `host_ns`; the core does the same for packets."""
        elapsed_ns = host_ns - self.since_ns
        return host_ns if elapsed_ns < 0 else host_ns + self.offset_ns + elapsed_ns * self.drift_ppb // 1_000_000_000


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
    clock_error: ClockError = ClockError()


@dataclass(frozen=True, slots=True)
class CaptureCounts:
    """Of a capture so far."""

    packets_count: int  # written
    foreign_count: int  # seen and not kept: for another host, flooded by a switch
    other_count: int  # seen and not kept: not TCP
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
    first_number: int | None = None,
    deliveries: OwnDeliveries | None = None,
) -> CaptureCounts:
    """Capture into a folder until SIGINT or SIGTERM, or until an error.

    Arguments: `on_start` is called when every interface is captured, `on_notice` with each line for the operator;
        `stop_requested` is asked about twenty times a second; `first_number` of the segments, if it is not the one
        after those in the folder; `deliveries`, whose packets are not recorded.
    Raises: PrivilegeError, ResourceError, InputError from opening; ResourceError when the disk fills or all interfaces
        are removed. What was written until then is kept.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    for line in prepare_folder(folder, options.host):
        on_notice(line)
    with _stop_signals() as signal_came:
        try:
            number = first_number or next_number(folder, options.host)
            capture = start_capture(options, folder, number, deliveries.endpoints if deliveries else ())
        except TracerError:
            for path in made:
                path.rmdir()
            raise
        if deliveries is not None:
            deliveries.attach(capture.exclude)
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


def run_shipped_capture(
    options: CaptureOptions,
    destination: Destination,
    *,
    on_start: Callable[[], None],
    on_notice: Callable[[str], None],
    stop_requested: Callable[[], bool] | None = None,
    include_own: bool = False,
) -> CaptureCounts:
    """Capture, and send each segment to a collector as soon as it is whole; at the end say that this was all.

    The packets of these deliveries are not recorded, unless `include_own`.
    Raises: as `run_capture`; ServiceError if the collector refuses at the start, or has not everything at the end. What
        it does not have stays in the spool and is sent by the next agent.
    """
    deliveries = None if include_own else OwnDeliveries(check_url(destination.url))
    client = CollectorClient(destination.url, destination.token, deliveries=deliveries)
    spools = open_spools(destination, options.host)
    spool = spools[-1]
    try:
        spool.skip_to(client.last_number(destination.session, options.host))
    except CollectorDownError as error:
        on_notice(f"{error}; segments are kept in {spool.folder} until it does")
    shipper = Shipper(client, spools, on_notice)
    thread: list[ShippingThread] = []

    def started() -> None:
        thread.append(ShippingThread(shipper))
        on_start()

    delivered = True
    try:
        counts = run_capture(
            replace(options, segment_age_ns=min(options.segment_age_ns, SHIPPED_SEGMENT_AGE_NS)),
            spool.folder,
            on_start=started,
            on_notice=on_notice,
            stop_requested=stop_requested,
            first_number=spool.next_number(),
            deliveries=deliveries,
        )
    finally:
        for running in thread:
            running.stop()
            delivered = shipper.close()
        for opened in spools:
            opened.close()
    if not delivered:
        raise ServiceError(
            f"{len(spool.waiting())} segments are not at the collector yet, they are kept in {spool.folder}",
            "run the same command again when it answers",
        )
    on_notice(f"{shipper.sent_count:,} segments sent, {shipper.lost_count:,} lost")
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


def start_capture(
    options: CaptureOptions, folder: Path, first_number: int, excluded: Iterable[Endpoint] = ()
) -> _core.Capture:
    """Open the interfaces and start the core's thread, which writes segments into `folder`.

    Packets to and from `excluded` are not recorded, whatever the filter says.
    """
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
        first_number=first_number,
        expression=compiled.expression,
        ethernet_filter=compiled.ethernet,
        raw_ip_filter=compiled.raw_ip,
        excluded=list(excluded),
        clock_error=(options.clock_error.offset_ns, options.clock_error.drift_ppb, options.clock_error.since_ns),
    )


def summary(counts: CaptureCounts, folder: Path) -> str:
    """Return a capture in one line."""
    parts = [f"{counts.packets_count:,} packets", _drops(counts.dropped_count)]
    if counts.foreign_count:
        parts.append(f"{counts.foreign_count:,} for other hosts not kept")
    if counts.other_count:
        parts.append(f"{counts.other_count:,} not TCP not kept")
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

    hangup_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # by nohup
    wanted = [number for number in STOP_SIGNALS if not (hangup_ignored and number == signal.SIGHUP)]
    earlier = {number: signal.signal(number, note) for number in wanted}
    try:
        yield lambda: bool(requests)
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
