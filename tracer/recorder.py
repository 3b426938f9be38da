"""A flight recorder: it keeps its segments on the host, and sends a sample of them, and those of a window asked for.

The sample is of the same moments on every host: of each `SAMPLE_PERIOD_NS` of the collector's clock, the first
`sample_ns`. So the collector sees requests whole, at both ends, for that share of the time, and can judge them.

A window is a time by the collector's clock. Requests for windows come in the answers to reports, so no port is opened
on a host. Segments of a window are linked into a spool of their own, whose session has the window's name, and are sent
from there as all others are: retried, resumed by the next agent, acknowledged when durable. Linking needs no room on
the disk, and what is linked stays although the history deletes it. Packets of a time that is yet to come are linked as
they arrive; the window is complete when the host's clock has passed its end by `SEGMENT_NS`.

A window may be of some connections only (`tracer.connection_choice`): then its segments are searched, and copies
without the other packets are sent, some of them at each step (`STEP_BYTES`).

The clocks' distance is known from reports, as two bounds (`tracer.reports`); a window is widened by their distance.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracer.connection_choice import Connection, ConnectionChoice, copy_chosen, parse_choice
from tracer.errors import InputError
from tracer.history import SEGMENT_NS, History, KeptSegment
from tracer.private_files import link_file, write_whole
from tracer.segments import NAME_PATTERN
from tracer.spool import Spool

SAMPLE_PERIOD_NS = 10_000_000_000
REPORT_SECONDS = 2.0
"""Between two reports of a recorder: it learns of a window in the answer."""
ROOM_BYTES = 64 << 20
"""The history leaves so much of the disk free."""
ANSWERS_COUNT = 20
"""So many of the last windows are in each report: an answer that was lost is in the next one."""
REMEMBERED_COUNT = 200
"""Windows that were complete before the last so many are forgotten."""
STEP_BYTES = 64 << 20
"""So much is searched or copied before the shipper's other work goes on."""
SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class WindowRequest:
    """The packets of a time, by the collector's clock."""

    window: str  # also the name of the session to which they are sent
    from_ns: int
    to_ns: int
    only: ConnectionChoice | None = None  # None: all packets


@dataclass(frozen=True, slots=True)
class WindowAnswer:
    """What a recorder has of a window."""

    window: str
    complete: bool  # no more segments come
    has_from_ns: int  # by the collector's clock: from then on the history is whole; 0 = not known any more
    segments_count: int
    bytes_count: int
    incarnations: tuple[str, ...]  # to which the segments belong


@dataclass(slots=True)
class WindowPart:
    """The segments of one incarnation for a window."""

    spool: Spool
    is_complete: bool = False


@dataclass(slots=True)
class _Window:
    request: WindowRequest
    has_from_ns: int
    parts: dict[str, WindowPart] = field(default_factory=dict)  # by incarnation
    searched: set[Path] = field(default_factory=set)
    connections: set[Connection] = field(default_factory=set)
    taken: set[Path] = field(default_factory=set)  # linked or copied, as far as there is something in them
    segments_count: int = 0
    bytes_count: int = 0
    complete: bool = False


class Recorder:
    """Runs in the thread of the shipper, between its steps.

    Arguments: `spool` of the sample; `is_sent`, whether a session's segments wait in a spool of an earlier agent;
        `clock_ahead`, the bounds by which this host's clock is ahead of the collector's.
    """

    def __init__(
        self,
        history: History,
        spool: Spool,
        sample_ns: int,
        clock_ahead: Callable[[], tuple[int, int] | None],
        *,
        is_sent: Callable[[str], bool] = lambda _session: False,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.history, self._spool, self._sample_ns = history, spool, sample_ns
        self._clock_ahead, self._is_sent, self._clock = clock_ahead, is_sent, clock
        self._windows: dict[str, _Window] = {}

    def step(self) -> list[WindowPart]:
        """Keep the history bounded, link what is to be sent; the parts that are new. Raises: OSError."""
        for segment in self.history.note_new():
            if self._is_in_sample(segment):
                link_file(segment.path, self._spool.folder)
        found = [part for window in self._windows.values() if not window.complete for part in self._extend(window)]
        self.history.trim(ROOM_BYTES)
        return found

    def take(self, requests: Sequence[WindowRequest]) -> None:
        """Note windows that the collector asks for; those that are known already are ignored."""
        ahead = self._clock_ahead()
        for request in requests:
            if request.window in self._windows or ahead is None or not NAME_PATTERN.fullmatch(request.window):
                continue
            if self._is_sent(request.window):
                self._windows[request.window] = _Window(request, 0, complete=True)
            else:
                has_from_ns = self.history.span().from_ns - sum(ahead) // 2
                self._windows[request.window] = _Window(request, has_from_ns)
        for done in [name for name, each in self._windows.items() if each.complete][:-REMEMBERED_COUNT]:
            del self._windows[done]

    def finish(self) -> None:
        """After the capture: windows that were not complete end here."""
        for window in self._windows.values():
            self._complete(window)

    def answers(self) -> tuple[WindowAnswer, ...]:
        """What is known of the last windows."""
        return tuple(
            WindowAnswer(
                name,
                each.complete,
                each.has_from_ns,
                each.segments_count,
                each.bytes_count,
                tuple(each.parts),
            )
            for name, each in list(self._windows.items())[-ANSWERS_COUNT:]
        )

    def _is_in_sample(self, segment: KeptSegment) -> bool:
        """Whether a segment holds packets of the sample's time."""
        ahead = self._clock_ahead()
        if ahead is None or not self._sample_ns:
            return False
        end_ns = segment.end_ns - sum(ahead) // 2
        into_ns = end_ns % SAMPLE_PERIOD_NS
        return into_ns - SECOND_NS < self._sample_ns

    def _extend(self, window: _Window) -> list[WindowPart]:
        """Link what a window lacks."""
        least_ns, most_ns = self._clock_ahead() or (0, 0)
        from_ns, to_ns = window.request.from_ns + least_ns, window.request.to_ns + most_ns
        is_over = self._clock() > to_ns + SEGMENT_NS
        wanted = self.history.between(from_ns, to_ns)
        if not self._search(window, wanted):
            return []
        begun: list[WindowPart] = []
        done_bytes = 0
        for segment in (each for each in wanted if each.path not in window.taken):
            if window.request.only is not None and done_bytes > STEP_BYTES:
                return begun
            done_bytes += segment.size_bytes
            begun += self._take(window, segment)
        if is_over:
            self._complete(window)
        return begun

    def _search(self, window: _Window, wanted: Sequence[KeptSegment]) -> bool:
        """Find the connections that are chosen in the segments; False while some are not searched yet."""
        if window.request.only is None:
            return True
        done_bytes = 0
        for segment in (each for each in wanted if each.path not in window.searched):
            if done_bytes > STEP_BYTES:
                return False
            with suppress(FileNotFoundError):  # the history has deleted it
                window.connections |= window.request.only.find(segment.path.read_bytes())
            window.searched.add(segment.path)
            done_bytes += segment.size_bytes
        return True

    def _take(self, window: _Window, segment: KeptSegment) -> list[WindowPart]:
        """Have a segment sent, or what is chosen of it; the part, if it is the first of its incarnation."""
        window.taken.add(segment.path)
        content = None
        if window.request.only is not None:
            with suppress(FileNotFoundError):
                content = copy_chosen(segment.path.read_bytes(), window.connections)
            if content is None:
                return []
        begun: list[WindowPart] = []
        part = window.parts.get(segment.incarnation)
        if part is None:
            part = window.parts[segment.incarnation] = WindowPart(self._open_spool(window, segment.incarnation))
            begun.append(part)
        if content is None:
            link_file(segment.path, part.spool.folder)
        else:
            write_whole(part.spool.folder / segment.path.name, content)
        window.segments_count += 1
        window.bytes_count += segment.path.stat().st_size if content is None else len(content)
        return begun

    def _open_spool(self, window: _Window, incarnation: str) -> Spool:
        collector = self._spool.folder.parents[2]
        spool = Spool(collector / window.request.window / self._spool.host / incarnation)
        spool.open()
        return spool

    def _complete(self, window: _Window) -> None:
        window.complete = True
        for part in window.parts.values():
            part.is_complete = True


def read_requests(answer: Mapping[str, Any]) -> list[WindowRequest]:
    """The windows in a collector's answer; none in what is not understood, such as one of a later version."""
    found = []
    for each in answer.get("windows") or ():
        with suppress(KeyError, TypeError, ValueError, InputError):
            text = str(each["only"]) if "only" in each else ""
            only = parse_choice(text) if text else None
            found.append(WindowRequest(str(each["window"]), int(each["from_ns"]), int(each["to_ns"]), only))
    return found
