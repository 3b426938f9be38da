"""Sends segments to a collector, so that none is lost and each is stored once.

A segment is first completed on this host's disk, in the spool. It is deleted only after the collector has acknowledged
that it is durable there. After any failure (no answer, full disk at the collector, a refused token, another service
there, a certificate that does not fit) it is sent again, at growing intervals; the token is read again where it was
refused, the certificates where their files changed, and the collector's name is looked up again. Only a segment that is
refused for what it is (too large, damaged on this disk) is set aside, so that it does not stop those after it. The
collector identifies a segment by session, host, incarnation, number and hash: sending it twice is harmless, also to
another one where there are several (`tracer.collector_choice`).

An agent that is stopped retries until everything is delivered, or the collector has acknowledged nothing for
`END_SECONDS`, or a second signal comes; a request that hangs may add its own timeout. Segments left then, or when an
agent is killed, are sent by the next agent on this host.
"""

import hashlib
import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPException
from logging import WARNING
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from tracer import _capture
from tracer.collector_connection import Answer, CollectorConnection, Connection
from tracer.deliveries import OwnDeliveries
from tracer.errors import InputError, ServiceError
from tracer.reports import REPORT_SECONDS, Delivery
from tracer.service_log import Notice
from tracer.spool import Spool, SpoolLimits, trim
from tracer.tls import SYSTEM, TlsFiles, client_context
from tracer.tls_failures import TlsFailures, tls_trouble

if TYPE_CHECKING:
    from tracer.recorder import Recorder, WindowPart

FIRST_RETRY_SECONDS = 0.5
LONGEST_RETRY_SECONDS = 30.0
IDLE_SECONDS = 0.2
"""How often the spool is looked at; bounds, with the segment's age, how late the collector sees a packet."""

LOOK_SECONDS = 2.0
"""An empty spool is listed so often although no file has come."""
SAME_TIME_NS = 50_000_000
"""Changes of a folder less than so far apart may have one time."""

REQUEST_TIMEOUT_SECONDS = 30.0
END_SECONDS = 8.0
"""Without an acknowledgement, after which a stopped agent gives up: `docker stop` kills it after 10 s."""
UNAUTHORIZED = 401
URL_TEXT = re.compile(r"[!-~]+")
"""RFC 3986 §2: printable ASCII, no spaces."""
ERRNO = re.compile(r"\[Errno -?\d+\] ")  # how Python begins the text of an error of the system
OF_THE_SEGMENT = (409, 413, 415)
"""Statuses of refusals that are of the segment: another one has its number, too large, no capture."""
PCAPNG = "application/x-pcapng"
PACKED = "application/x-twintap-packed"
"""The media type of packed segments; a collector that takes them says so in its answers (RFC 9110 §12.5.1)."""
KEPT_SECONDS = 2.0
"""A connection idle for longer may be closed, and the next request open another. A collector keeps it for 5 s."""


Connect = Callable[[str, ssl.SSLContext | None, float], Connection]
"""Opens a connection when it is needed: to a URL, with a context of TLS for https, and seconds after which it fails."""
NO_HEADERS: Mapping[str, str] = {}


class SendReport(Protocol):
    """Sends an agent's report of itself; raises nothing."""

    def __call__(self, delivery: Delivery, *, ended: bool) -> None:
        """`ended`: it is the last."""


class CollectorDownError(ServiceError):
    """The collector cannot take a segment now; it may later."""


class CollectorRefusesError(ServiceError):
    """The collector takes nothing from this agent until somebody changes something: the token, the address."""


class SegmentRefusedError(ServiceError):
    """The collector will not take this segment, however often it is sent; it may take others."""


class CollectorClient:
    """The requests of an agent to its collector.

    Every method raises CollectorDownError for what gets better by itself (no answer, 5xx, a damaged body) and
    CollectorRefusesError for what does not.
    """

    def __init__(
        self,
        url: str,
        token: str = "",
        connect: Connect = CollectorConnection,
        deliveries: OwnDeliveries | None = None,
        token_now: Callable[[], str] | None = None,
        tls: TlsFiles = SYSTEM,
        name: str = "",
    ) -> None:
        """`connect` opens connections; `deliveries` learns of each address before a connection to it is opened;
        `token_now` says what the token is after one was refused; messages call the collector by `name`, or its URL.

        Raises: InputError for certificates that cannot be used.
        """
        self._token_now, self._tls, self._connect = token_now, tls, connect
        self.url = check_url(url)
        self._name = name or self.url
        self._stamp = tls.stamp()
        self._context = _context_for(self.url, tls)
        self._authorization = _bearer(token)
        self._timeout_seconds = REQUEST_TIMEOUT_SECONDS
        self._connection = self._new_connection()
        self._deliveries = deliveries
        self.tls_failures = TlsFailures()
        self._answered_at: float | None = None
        self._takes_packed = False  # by its last answer
        self._sent_packed = ""  # hash of the segment that was last sent packed and is not acknowledged

    def close(self) -> None:
        """Close its connections."""
        self._connection.close()

    def limit_waiting(self, seconds: float) -> None:
        """From now on, fail a request during which nothing was sent or received for so long."""
        self._timeout_seconds = seconds
        self._connection.limit_waiting(seconds)

    def check(self) -> None:
        """Ask whether a collector answers there and takes the token."""
        answer = self._send("GET", "/api/health")
        self._response_field(answer, "status")
        self._note_types(answer)

    def put_segment(self, spool: Spool, number: int, content: bytes) -> None:
        """Send a segment; when this returns, it is durable at the collector.

        It is sent packed where the collector takes that, and plain where it was not acknowledged when it was packed.
        Raises: SegmentRefusedError if it is this segment that the collector does not take.
        """
        sha256 = hashlib.sha256(content).hexdigest()
        is_packed = self._takes_packed and self._sent_packed != sha256
        headers = {"X-Content-SHA256": sha256, "Content-Type": PACKED if is_packed else PCAPNG}
        if is_packed:
            self._sent_packed = sha256
            content = _capture.pack(content)
        answer = self._send("PUT", f"{_place(spool)}/segments/{number}", content=content, headers=headers)
        if self._response_field(answer, "acknowledged") is not True:
            raise CollectorDownError(f"the collector at {self._name} did not acknowledge segment {number}")
        self._sent_packed = ""
        self._note_types(answer)

    def report(self, spool: Spool, report: dict[str, object]) -> dict[str, Any]:
        """Send the agent's report of itself; the answer: `received_ns` by the collector's clock, and what it asks
        for."""
        answer = self._post(f"{_place(spool)}/report", report)
        self._response_field(answer, "received_ns")
        found: dict[str, Any] = json.loads(answer.content)
        return found

    def close_incarnation(self, spool: Spool) -> None:
        """Notify the collector that no more segments of an incarnation come."""
        state = spool.state()
        closing = {"last_number": state.last_number, "lost_count": state.lost_count}
        self._post(f"{_place(spool)}/close", closing)

    def _note_types(self, answer: Answer) -> None:
        self._takes_packed = PACKED in answer.accept

    def _response_field(self, answer: Answer, key: str) -> Any:
        try:
            return answer.field(key)
        except (ValueError, KeyError, TypeError):
            raise CollectorRefusesError(f"what answers at {self._name} is no collector", "check the URL") from None

    def _post(self, path: str, document: Mapping[str, object]) -> Answer:
        content = json.dumps(document, separators=(",", ":")).encode()
        return self._send("POST", path, content, {"Content-Type": "application/json"})

    def _send(
        self, method: str, path: str, content: bytes | None = None, headers: Mapping[str, str] = NO_HEADERS
    ) -> Answer:
        if self._answered_at is None or time.monotonic() - self._answered_at > KEPT_SECONDS:
            self._follow_changes()
        try:
            answer = self._connection.request(method, path, {**self._authorization, **headers}, content)
        except (OSError, HTTPException) as error:
            self._answered_at, self._takes_packed = None, False
            raise self._no_answer(error) from None
        self._answered_at = time.monotonic()
        if answer.is_success:
            return answer
        if answer.status == UNAUTHORIZED and self._has_new_token():
            return self._send(method, path, content, headers)
        detail = _detail(answer)
        if answer.status in OF_THE_SEGMENT and method == "PUT":
            raise SegmentRefusedError(f"the collector at {self._name} refuses a segment ({detail})")
        if answer.status >= 500 or answer.status in (408, 422, 429):
            raise CollectorDownError(f"the collector at {self._name} cannot take segments now ({detail})")
        self._answered_at = None  # before the next attempt, see whether it has moved
        raise CollectorRefusesError(f"the collector at {self._name} refuses ({detail})", _remedy(answer.status))

    def _no_answer(self, error: OSError | HTTPException) -> CollectorDownError | CollectorRefusesError:
        """The error for a request without an answer."""
        trouble = tls_trouble(error, self.url, self._context)
        if trouble is not None:
            self.tls_failures = self.tls_failures.with_one_more(trouble, time.time_ns())
            return CollectorRefusesError(f"the collector at {self._name}: {trouble[0]}", trouble[1])
        why = ERRNO.sub("", str(error)) or type(error).__name__
        return CollectorDownError(f"the collector at {self._name} does not answer ({why})")

    def _has_new_token(self) -> bool:
        """Whether the collector has a new token; if so, requests carry it from now on."""
        found = _bearer(self._token_now() if self._token_now else "")
        is_new = bool(found) and found != self._authorization
        self._authorization = found or self._authorization
        return is_new

    def _follow_changes(self) -> None:
        """Before a connection is opened: read certificates again where they changed, look up the name."""
        stamp = self._tls.stamp()
        with suppress(InputError):  # they are being written: what was read before stays in use
            if stamp != self._stamp:
                context = _context_for(self.url, self._tls)
                self._stamp, self._context, before = stamp, context, self._connection
                self._connection = self._new_connection()
                self._takes_packed = False
                before.close()
        if self._deliveries is not None:
            self._deliveries.look_up(self.url)

    def _new_connection(self) -> Connection:
        return self._connect(self.url, self._context, self._timeout_seconds)


class Collector(Protocol):
    """What a shipper sends to: one collector (`CollectorClient`), or one of several."""

    @property
    def tls_failures(self) -> TlsFailures:
        """Attempts that TLS ended."""
        ...

    def limit_waiting(self, seconds: float) -> None:
        """From now on, fail a request during which nothing was sent or received for so long."""
        ...

    def check(self) -> None:
        """Ask whether it takes anything."""
        ...

    def put_segment(self, spool: Spool, number: int, content: bytes) -> None:
        """Send a segment; when this returns, it is durable."""
        ...

    def close_incarnation(self, spool: Spool) -> None:
        """Notify it that no more segments of an incarnation come."""
        ...


def _place(spool: Spool) -> str:
    """Path of an incarnation at the collector."""
    return f"/api/sessions/{spool.session}/hosts/{spool.host}/incarnations/{spool.incarnation}"


def _never() -> bool:
    return False


class Shipper:
    """Sends what is in the spools, in order, and keeps what it cannot send.

    `spools[-1]` is that of the running capture; the others were left by earlier agents. Together they hold at most
    `limits`.
    """

    def __init__(
        self,
        client: Collector,
        spools: list[Spool],
        limits: SpoolLimits,
        notice: Notice,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        report: SendReport | None = None,
        recorder: "Recorder | None" = None,
        report_seconds: float = REPORT_SECONDS,
    ) -> None:
        """`report` sends the agent's report of itself, every `report_seconds`, whatever becomes of the segments;
        `recorder` chooses what is sent, if not all is."""
        self._client, self._report, self._report_seconds = client, report, report_seconds
        self._recorder = recorder
        self._parts: list[WindowPart] = []
        self._left = spools[:-1]
        self._spool = spools[-1]
        self._limits = limits
        self._notice = notice
        self._clock = clock
        self._pause = pause
        self._retry_seconds = FIRST_RETRY_SECONDS
        self._next_attempt = self._acknowledged_at = self._next_report = clock()
        self._failure: ServiceError | None = None
        self._is_closing = self._is_closed = False
        self._empty_since_ns: int | None = None
        self._next_look = 0.0
        self.sent_count = 0
        self.lost_count = 0

    def check(self) -> None:
        """Ask whether the collector takes anything from this agent; if not, it is said as after a delivery."""
        try:
            self._client.check()
        except (CollectorDownError, CollectorRefusesError) as error:
            self._note_failure(error)

    def step(self, must_end: Callable[[], bool] = _never) -> None:
        """Send what is ready, unless the collector failed a moment ago; keep the spools bounded.

        Arguments: `must_end` is asked before each segment.
        """
        self._report_if_due()
        try:
            if self._recorder is not None:
                self._parts += self._recorder.step()
            elif self._has_nothing_new():
                return
            self._trim()
            if self._clock() >= self._next_attempt:
                if self._failure is not None and not self._is_closing and not self.waiting_count():
                    self._client.check()
                self._send_spools(must_end)
                self._note_success()
        except (CollectorDownError, CollectorRefusesError) as error:
            self._note_failure(error)
        except OSError as error:
            self._note_failure(CollectorDownError(f"the spool cannot be used: {error.strerror}"))

    def _has_nothing_new(self) -> bool:
        """Whether all was sent at the last look, and no file has come since. Raises: OSError."""
        if self._left or self._is_closing or self._failure is not None:
            return False
        now, changed_ns = self._clock(), self._spool.changed_ns()
        if now < self._next_look and changed_ns == self._empty_since_ns:
            return True
        self._next_look = now + LOOK_SECONDS
        # Times of files are coarse: one that comes in the same moment would not show.
        is_past = abs(time.time_ns() - changed_ns) > SAME_TIME_NS
        self._empty_since_ns = changed_ns if is_past and not self._spool.waiting() else None
        return self._empty_since_ns is not None

    def close(self, must_end: Callable[[], bool] = _never) -> bool:
        """After the capture: send the rest and inform the collector that this was all; whether it worked.

        It tries again until `must_end`, or until the collector has acknowledged nothing for `END_SECONDS`.
        """
        self._client.limit_waiting(END_SECONDS)
        self._is_closing = True
        if self._recorder is not None:
            self._parts += self._recorder.step()
            self._recorder.finish()
        self._retry_seconds = FIRST_RETRY_SECONDS
        self._next_attempt = self._acknowledged_at = self._clock()
        self.step(must_end)
        while not self._is_closed and not isinstance(self._failure, CollectorRefusesError) and not must_end():
            if self._clock() - self._acknowledged_at >= END_SECONDS:
                break
            self._pause(IDLE_SECONDS)
            self.step(must_end)
        return self._is_closed

    def delivery(self) -> Delivery:
        """How it stands."""
        failure = str(self._failure or "")
        return Delivery(self.sent_count, self.lost_count, failure, self._client.tls_failures)

    def waiting_count(self) -> int:
        """Segments in all spools."""
        return sum(len(spool.waiting()) for spool in self._spools())

    def _spools(self) -> list[Spool]:
        return [*self._left, *(part.spool for part in self._parts), self._spool]

    def _trim(self) -> None:
        thrown_count = trim(self._spools(), self._limits)
        if thrown_count:
            self.lost_count += thrown_count
            lost = f"its {thrown_count} oldest segments are lost"
            line = f"the spool is full: {lost} (raise --spool-mib, or --memory-mib)"
            self._notice(line, WARNING, count=thrown_count)

    def _send_spools(self, must_end: Callable[[], bool]) -> None:
        """All spools in their order; those of earlier agents and of windows, and at the end the last, are closed when
        all is sent."""
        while self._left:
            if not self._send_all(self._left[0], must_end):
                return
            self._close(self._left.pop(0))
        for part in list(self._parts):
            if not self._send_all(part.spool, must_end):
                return
            if part.is_complete:
                self._close(part.spool)
                part.spool.remove_empty_folders()
                self._parts.remove(part)
        if self._send_all(self._spool, must_end) and self._is_closing and not self._is_closed:
            self._close(self._spool)
            self._is_closed = True

    def _send_all(self, spool: Spool, must_end: Callable[[], bool]) -> bool:
        """Whether all was sent."""
        for number, path in spool.waiting():
            if must_end():
                return False
            try:
                self._client.put_segment(spool, number, path.read_bytes())
            except SegmentRefusedError as error:
                self.lost_count += 1
                line = f"{error}; it is not sent again, and kept as {spool.set_aside(number, path)}"
                self._notice(line, WARNING, segment=number)
                continue
            self._acknowledged_at, self._retry_seconds = self._clock(), FIRST_RETRY_SECONDS
            spool.delete(number, path)
            self.sent_count += 1
            self._report_if_due()
        return True

    def report_end(self) -> None:
        """Report for the last time."""
        if self._report is not None:
            self._report(self.delivery(), ended=True)

    def _report_if_due(self) -> None:
        if self._report is not None and self._clock() >= self._next_report:
            self._next_report = self._clock() + self._report_seconds
            self._report(self.delivery(), ended=False)

    def _close(self, spool: Spool) -> None:
        if spool.state().last_number:
            self._client.close_incarnation(spool)
        spool.remove()

    def _note_failure(self, error: ServiceError) -> None:
        """Wait before the next attempt; a failure of another kind than the one before is said."""
        if type(self._failure) is not type(error):
            self._notice(f"{error}; segments are kept in {self._spool.folder} and sent again", WARNING)
        self._failure = error
        self._next_attempt = self._clock() + self._retry_seconds
        self._retry_seconds = min(2 * self._retry_seconds, LONGEST_RETRY_SECONDS)

    def note_mistake(self, error: Exception) -> None:
        """Go on after an error that should not happen, as after one of the collector's."""
        self._note_failure(CollectorDownError(f"sending failed ({type(error).__name__}: {error})"))

    def _note_success(self) -> None:
        if self._failure is not None:
            self._failure = None
            self._notice("the collector takes segments again")
        self._retry_seconds = FIRST_RETRY_SECONDS


class ShippingThread:
    """Runs a shipper beside a capture."""

    def __init__(self, shipper: Shipper) -> None:
        self._shipper = shipper
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shipping", daemon=True)
        self._thread.start()

    def stop(self, must_end: Callable[[], bool] = _never) -> bool:
        """End after the segment being sent; False if `must_end` came first: it may still be under way."""
        self._stopped.set()
        while self._thread.is_alive() and not must_end():
            self._thread.join(IDLE_SECONDS)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped.wait(IDLE_SECONDS):
            try:
                self._shipper.step(self._stopped.is_set)
            except Exception as error:  # noqa: BLE001  a mistake of ours ends neither deliveries nor the capture
                self._shipper.note_mistake(error)


def check_url(url: str) -> str:
    """Return the collector's URL without a slash at its end. Raises: InputError if it is none."""
    if not _is_url(url):
        raise InputError(f"{url!r} is no collector's URL", "give one such as http://127.0.0.1:8710")
    if "@" in urlsplit(url).netloc:
        raise InputError("a collector's URL holds no user and password", "give a token: --token-file or TWINTAP_TOKEN")
    return url.rstrip("/")


def _is_url(url: str) -> bool:
    """Whether it is one of HTTP that holds nothing which a URL cannot hold."""
    try:
        parsed = urlsplit(url)
        has_port = parsed.port is None or parsed.port > 0
    except ValueError:
        return False
    return (
        parsed.scheme in ("http", "https")
        and bool(parsed.hostname)
        and has_port
        and URL_TEXT.fullmatch(url) is not None
    )


def _context_for(url: str, tls: TlsFiles) -> ssl.SSLContext | None:
    """What connections are opened with; None for plain HTTP. Raises: InputError."""
    return client_context(tls) if url.startswith("https:") else None


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def _detail(answer: Answer) -> str:
    try:
        detail = answer.field("detail")
    except (ValueError, KeyError, TypeError):
        detail = answer.reason
    return f"{answer.status}: {detail}"


def _remedy(status_code: int) -> str:
    match status_code:
        case 401 | 403:
            return "give the collector's token: --token-file or TWINTAP_TOKEN"
        case 404:
            return "check the URL: no collector answers there"
        case _:
            return "see the collector's messages"
