"""An agent that sends: it captures into its spool, and each segment is sent to the collector as soon as it is complete.

A full disk does not end it. It reports this in one line, continues in memory, within the spool's limit there, and
returns to the disk when that has room again, which it checks at growing intervals. Each change reopens the interfaces,
so packets of some milliseconds are missing then; the trace shows this as time without capture.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from logging import WARNING
from pathlib import Path

from tracer import _capture
from tracer.agent import WAIT_SECONDS, CaptureCounts, CaptureOptions, StopSignals, add_counts, run_capture
from tracer.collector_choice import Collectors, Place, split_urls
from tracer.collector_connection import CollectorConnection
from tracer.cpu_budget import CpuBudget
from tracer.deliveries import OwnDeliveries
from tracer.errors import DiskFullError, InputError, ServiceError
from tracer.history import HISTORY_FOLDER, History
from tracer.orders import Steering, read_orders
from tracer.recorder import REPORT_SECONDS as RECORDER_REPORT_SECONDS
from tracer.recorder import Recorder, read_requests
from tracer.reports import REPORT_SECONDS, Delivery, Reporting
from tracer.segments import next_number
from tracer.service_log import Notice
from tracer.shipping import (
    CollectorClient,
    CollectorDownError,
    CollectorRefusesError,
    Shipper,
    ShippingThread,
)
from tracer.spool import Destination, Spool, open_spools, spool_error
from tracer.tls import read_bundle
from tracer.tokens import first_line, left_token_for, read_token

SHIPPED_SEGMENT_AGE_NS = 500_000_000
"""Of segments for a collector: half of what a live view may be late (2 s) is left to ship and analyse them."""
RECORDER_SEGMENT_AGE_NS = 1_000_000_000
"""Of a flight recorder's: half as many files, and a window is complete so much after its end."""
FIRST_LOOK_SECONDS = 2.0
LONGEST_LOOK_SECONDS = 60.0
"""Between looks whether the disk has room again."""
ROOM_SEGMENTS = 2
"""So many must fit before the disk is used again."""

Stop = Callable[[], bool]


def run_shipped_capture(
    options: CaptureOptions,
    destination: Destination,
    *,
    on_start: Callable[[], None],
    on_notice: Notice,
    stop_requested: Stop | None = None,
    include_own: bool = False,
) -> CaptureCounts:
    """Capture, and send each segment to a collector as soon as it is whole; at the end say that this was all.

    The packets of these deliveries are not recorded, unless `include_own`.
    Raises: as `run_capture`, but for a full disk; ServiceError if the collector has not everything at the end. What it
        does not have stays in the spool and is sent by the next agent.
    """
    urls = split_urls(destination.url)
    deliveries = None if include_own else OwnDeliveries(urls[0])
    if deliveries is not None:
        for url in urls[1:]:
            deliveries.look_up(url)
    client = Collectors(
        urls,
        options.host,
        partial(_open_client, destination, deliveries),
        on_notice,
        urls_now=partial(urls_now, destination) if destination.url_file else None,
    )
    spools = open_spools(destination, options.host)
    spool = spools[-1]
    history = _open_history(destination, spool) if destination.keep_bytes else None
    for line in history.notices if history else ():
        on_notice(line)
    for line in (line for opened in spools for line in opened.notices):
        on_notice(line)
    segment_age_ns = RECORDER_SEGMENT_AGE_NS if history else min(options.segment_age_ns, SHIPPED_SEGMENT_AGE_NS)
    options = replace(options, segment_age_ns=segment_age_ns, stem=spool.stem)
    budget = CpuBudget(options.cpu_percent, options.payload)
    reporting = Reporting(options, spools, destination.spool_limit_bytes, budget=budget)
    recorder = _recorder(history, spools, destination, reporting) if history else None
    steering = Steering(options, reporting.note_orders)
    report = partial(_send_report, client, spool, reporting, steering, recorder)
    shipper = Shipper(
        client,
        spools,
        destination.limits,
        on_notice,
        report=report,
        recorder=recorder,
        report_seconds=RECORDER_REPORT_SECONDS if recorder else REPORT_SECONDS,
    )
    shipper.check()
    thread: list[ShippingThread] = []

    def start_shipping() -> None:
        if not thread:
            thread.append(ShippingThread(shipper))
        on_start()

    if left_count := shipper.waiting_count():
        on_notice(f"{left_count:,} segments that an earlier agent left are sent first")
    delivered = True
    with StopSignals().catch() as signals:
        try:
            stop = _either(lambda: signals.count() > 0, stop_requested)
            start, note = start_shipping, reporting.note_capture
            memory_bytes = destination.memory.overflow_bytes
            turn = _Turn(
                steering, spool, start, note, on_notice, stop, signals, deliveries, budget, memory_bytes, history
            )
            counts = _capture_in_turns(turn)
        finally:
            first_count = min(1, signals.count())
            for running in thread:
                delivered = _deliver_rest(running, shipper, lambda: signals.count() > first_count)
                if signals.count() <= first_count:
                    shipper.report_end()
            for opened in spools:
                opened.close()
    if not delivered:
        raise ServiceError(
            f"{shipper.waiting_count():,} segments are not at the collector yet, they are kept in {destination.spool}",
            "the next agent of this host sends them: run the same command again when it answers",
        )
    on_notice(f"{shipper.sent_count:,} segments sent, {shipper.lost_count:,} lost")
    return counts


def _open_client(destination: Destination, deliveries: OwnDeliveries | None, place: Place) -> CollectorClient:
    """A client of one collector. Raises: InputError."""
    return CollectorClient(
        place.url,
        destination.token,
        partial(CollectorConnection, address=place.address),
        deliveries,
        token_now=partial(_token_now, destination, place.url),
        tls=destination.tls,
        name=str(place),
    )


def _token_now(destination: Destination, url: str) -> str:
    """The collector's token now: what its file or the bundle holds, or what a collector of this user left on this
    machine."""
    with suppress(InputError):  # it is being written
        if destination.token_file is not None:
            return read_token(None, destination.token_file)
        if destination.tls.bundle is not None and (found := read_bundle(destination.tls.bundle).token):
            return found
    return left_token_for(url)


def urls_now(destination: Destination) -> tuple[str, ...]:
    """Where the collectors are now, as the file says that names them. Raises: InputError."""
    file = destination.url_file
    if file is None or file == destination.tls.bundle:
        return split_urls(read_bundle(file).url if file else destination.url)
    return split_urls(first_line(file, "address"))


def _open_history(destination: Destination, spool: Spool) -> History:
    """The history of a flight recorder. Raises: ResourceError."""
    collector, session, host, incarnation = spool.folder.parts[-4:]
    folder = destination.spool / HISTORY_FOLDER / collector / session / host / incarnation
    history = History(folder, destination.keep_bytes, destination.memory.listed_count)
    try:
        history.open()
    except OSError as error:
        raise spool_error(folder, error) from None
    return history


def _recorder(history: History, spools: list[Spool], destination: Destination, reporting: Reporting) -> Recorder:
    """The flight recorder of this agent."""
    left = {spool.session for spool in spools[:-1]}
    recorder = Recorder(history, spools[-1], destination.sample_ns, reporting.clock_ahead_ns, is_sent=left.__contains__)
    reporting.attach(recorder)
    return recorder


def _send_report(
    client: Collectors,
    spool: Spool,
    reporting: Reporting,
    steering: Steering,
    recorder: Recorder | None,
    delivery: Delivery,
    *,
    ended: bool,
) -> None:
    """Report; if the collector does not take it, the next one says as much."""
    delivery = replace(delivery, away=client.away(), switches_count=client.switches_count)
    with suppress(CollectorDownError, CollectorRefusesError):
        answer = reporting.send(partial(client.report, spool), delivery, ended=ended)
        steering.take(read_orders(answer))
        if recorder is not None:
            recorder.take(read_requests(answer))


def _deliver_rest(running: ShippingThread, shipper: Shipper, must_end: Stop) -> bool:
    """After the capture; whether the collector has all."""
    return running.stop(must_end) and shipper.close(must_end)


@dataclass(frozen=True, slots=True)
class _Turn:
    """Settings that captures on the disk and in memory share."""

    steering: Steering
    spool: Spool
    on_start: Callable[[], None]
    on_capture: Callable[[_capture.Capture], None]
    on_notice: Notice
    stop: Stop
    signals: StopSignals
    deliveries: OwnDeliveries | None
    budget: CpuBudget
    memory_bytes: int  # for segments, while the disk is full
    history: History | None = None  # of a flight recorder, which captures there

    @property
    def folder(self) -> Path:
        """Where segments go while the disk has room."""
        return self.spool.folder if self.history is None else self.history.folder

    def next_number(self) -> int:
        """The first number that no segment has."""
        if self.history is None:
            return self.spool.next_number()
        return next_number(self.history.folder, self.spool.stem)

    def has_new_orders(self, number: int) -> bool:
        """Whether the collector's orders changed since that turn."""
        return self.steering.turn != number

    def wait_for_orders(self, number: int) -> bool:
        """Capture nothing until the orders of that turn change; True if a stop came first."""
        self.on_notice("the collector orders not to capture")
        while not self.has_new_orders(number):
            if self.stop():
                return True
            self.signals.sleep(WAIT_SECONDS)
        return self.stop()

    def run(self, folder: Path, until: Stop) -> CaptureCounts:
        """Capture there. Raises: as `run_capture`."""
        options = self.steering.options
        self.budget.follow(options.cpu_percent, options.payload)
        return run_capture(
            options,
            folder,
            on_start=self.on_start,
            on_capture=self.on_capture,
            on_notice=self.on_notice,
            stop_requested=until,
            first_number=self.next_number(),
            deliveries=self.deliveries,
            signals=self.signals,
            budget=self.budget,
        )


def _capture_in_turns(turn: _Turn) -> CaptureCounts:
    """Capture on the disk, in memory while that is full; until a stop.

    Raises: as `run_capture`, but for a full disk.
    """
    spool, counts = turn.spool, CaptureCounts()
    look_seconds = FIRST_LOOK_SECONDS
    folder = turn.folder
    while True:
        number = turn.steering.turn
        if not turn.steering.is_recording:
            if turn.wait_for_orders(number):
                return counts
            continue
        until = _either(turn.stop, partial(turn.has_new_orders, number))
        if folder != turn.folder:
            until = _either(until, _room(spool, turn.steering.options, look_seconds))
        try:
            counts = add_counts(counts, turn.run(folder, until))
            if turn.stop():
                return counts
            if turn.has_new_orders(number):
                continue
            folder = turn.folder
            turn.on_notice(f"the disk of {folder} has room again")
        except DiskFullError as error:
            if folder == spool.folder and spool.overflow is not None:  # a recorder waits until its history has room
                folder = spool.overflow
                turn.on_notice(f"{error.what}; going on in memory, {turn.memory_bytes >> 20} MiB at most", WARNING)
            else:
                line = f"{error.what}; nothing is captured, trying again in {look_seconds:.0f} s"
                turn.on_notice(line, WARNING)
                if _stopped_within(turn, look_seconds):
                    return counts
                folder = turn.folder
            look_seconds = min(2 * look_seconds, LONGEST_LOOK_SECONDS)


def _room(spool: Spool, options: CaptureOptions, look_seconds: float) -> Stop:
    """Whether the disk has room, checked at most every `look_seconds`."""
    next_look = time.monotonic() + look_seconds

    def has_room() -> bool:
        nonlocal next_look
        if time.monotonic() < next_look:
            return False
        next_look = time.monotonic() + look_seconds
        return spool.has_room(ROOM_SEGMENTS * options.segment_bytes)

    return has_room


def _stopped_within(turn: _Turn, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if turn.stop():
            return True
        turn.signals.sleep(WAIT_SECONDS)
    return turn.stop()


def _either(one: Stop, other: Stop | None) -> Stop:
    return lambda: one() or (other is not None and other())
