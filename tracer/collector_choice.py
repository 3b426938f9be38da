"""To which of several collectors an agent delivers.

1. A URL whose name has several addresses stands for a collector at each of them.
2. The collectors are in an order of this host's own, by a hash of the host's name and the collector (rendezvous
   hashing): agents of many hosts spread evenly, and a collector that is added takes over its share and moves no others.
3. A request goes to the first. If that refuses the connection or the request (5xx, a full disk, the token), or is
   silent for `SILENCE_SECONDS`, the request goes to the next one at once.
4. One that failed is passed over for `RETURN_SECONDS`. Then it is asked for its health, within `PROBE_SECONDS`; if it
   answers, the next request is its own again.
5. If all have failed, the request has, and each is tried again with the next.

Nothing is lost or doubled by that: a segment is deleted here only when one of them has acknowledged it, and one that
two of them hold (the acknowledgement was lost) has the same session, host, incarnation and number at both.

With one collector none of this applies: its requests may take `tracer.shipping.REQUEST_TIMEOUT_SECONDS`.
Source: Thaler and Ravishankar, Using name-based mappings to increase hit rates, IEEE/ACM ToN 6(1), 1998.
"""

import hashlib
import ipaddress
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from logging import INFO, WARNING
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tracer.errors import InputError, ServiceError
from tracer.service_log import Notice
from tracer.shipping import (
    REQUEST_TIMEOUT_SECONDS,
    CollectorClient,
    CollectorDownError,
    CollectorRefusesError,
    check_url,
)
from tracer.spool import Spool
from tracer.tls_failures import NO_FAILURES, TlsFailures

SILENCE_SECONDS = 5.0
"""Without a byte sent or received, after which the next collector is asked; where there is one."""
RETURN_SECONDS = 30.0
"""For so long, one that failed is passed over."""
PROBE_SECONDS = 2.0
"""For one that failed to say that it is healthy again; meanwhile nothing else is sent."""
LOOK_SECONDS = 2.0
"""Between two looks whether the list has changed."""
RESOLVE_SECONDS = 30.0
"""Between two looks whether a name has other addresses, while requests succeed."""
PORTS = {"http": 80, "https": 443}

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Place:
    """A collector: its URL, and the address at which it is asked; empty: whichever the URL's name has."""

    url: str
    address: str = ""

    def __str__(self) -> str:
        return f"{self.url} ({self.address})" if self.address else self.url


OpenClient = Callable[[Place], CollectorClient]
SEGMENTS, REPORTS = "segments", "reports"
Key = tuple[str, str, str]
"""What a collector may have: segments or reports, of a session and an incarnation."""


@dataclass(slots=True)
class _Candidate:
    place: Place
    client: CollectorClient
    failure: str = ""  # why it took nothing at the last attempt
    passed_until: float = 0.0
    has: set[tuple[str, str, str]] = field(default_factory=set)  # what kind it took, of which session and incarnation


def split_urls(text: str) -> tuple[str, ...]:
    """The URLs of collectors in a text, separated by commas, each once. Raises: InputError if one is none."""
    urls = (check_url(part.strip()) for part in text.split(",") if part.strip())
    found = tuple(dict.fromkeys(urls))
    if not found:
        raise InputError(f"{text!r} names no collector", "give a URL such as http://127.0.0.1:8710")
    return found


def several_addresses(url: str) -> tuple[str, ...]:
    """The addresses of a URL's name, those of the family that the system prefers first; none if each family has one
    at most, or the name is not known now."""
    parsed = urlsplit(url)
    name = parsed.hostname or ""
    with suppress(ValueError):
        ipaddress.ip_address(name)
        return ()
    try:
        found = socket.getaddrinfo(name, parsed.port or PORTS[parsed.scheme], type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    by_family: dict[int, dict[str, None]] = {}
    for family, _, _, _, sockaddr in found:
        by_family.setdefault(family, {})[str(sockaddr[0])] = None
    if max(map(len, by_family.values()), default=0) < 2:
        return ()
    return tuple(address for addresses in by_family.values() for address in addresses)


def places_of(urls: Sequence[str], addresses_of: Callable[[str], tuple[str, ...]] = several_addresses) -> list[Place]:
    """The collectors that URLs stand for."""
    return [Place(url, address) for url in urls for address in addresses_of(url) or ("",)]


def rank(places: Sequence[Place], host: str) -> list[Place]:
    """Collectors in the order of a host. Addresses of a family that the system does not prefer come after all others.

    The order of two of them depends on nothing but these two and the host.
    """
    first_families: dict[str, int] = {}
    for place in places:
        first_families.setdefault(place.url, _version(place.address))
    return sorted(
        dict.fromkeys(places),
        key=lambda each: (first_families[each.url] != _version(each.address), _score(each, host)),
    )


def _key(kind: str, spool: Spool) -> Key:
    return kind, spool.session, spool.incarnation


def _version(address: str) -> int:
    return ipaddress.ip_address(address.partition("%")[0]).version if address else 0


def _score(place: Place, host: str) -> bytes:
    return hashlib.sha256(f"{place.url} {place.address} {host}".encode()).digest()


class Collectors:
    """The collectors of an agent, with the requests of a `CollectorClient`; each goes to one that takes it.

    Raises, in every method: as `CollectorClient`, the error of the first one in order if none takes it.
    """

    def __init__(
        self,
        urls: Sequence[str],
        host: str,
        open_client: OpenClient,
        notice: Notice,
        *,
        urls_now: Callable[[], Sequence[str]] | None = None,
        addresses_of: Callable[[str], tuple[str, ...]] = several_addresses,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`urls_now` says which there are now; it may raise InputError while the list is being written."""
        self._urls, self._host, self._open_client, self._notice = tuple(urls), host, open_client, notice
        self._urls_now, self._addresses_of, self._clock = urls_now, addresses_of, clock
        self._limit_seconds: float | None = None
        self._candidates: list[_Candidate] = []
        self._current: _Candidate | None = None  # that took the last segment
        self._answered: _Candidate | None = None
        self._ended_failures = NO_FAILURES  # of clients that were closed
        now = clock()
        self._next_look, self._next_resolve = now + LOOK_SECONDS, now + RESOLVE_SECONDS
        self._has_failed = False  # the last request
        self.switches_count = 0
        """How often segments went on to another one."""
        self._replace(self._ranked_places())

    @property
    def tls_failures(self) -> TlsFailures:
        """Attempts that TLS ended, at any of them."""
        found = self._ended_failures
        for each in self._candidates:
            found = found.joined_with(each.client.tls_failures)
        return found

    def away(self) -> str:
        """Which collector should take this host's segments and why it does not; empty if it does, or none does."""
        first, current = self._candidates[0], self._current
        if current is None or current is first or not first.failure:
            return ""
        return first.failure if str(first.place) in first.failure else f"{first.place}: {first.failure}"

    def close(self) -> None:
        """Close all connections."""
        for each in self._candidates:
            each.client.close()

    def limit_waiting(self, seconds: float) -> None:
        """From now on, fail a request during which nothing was sent or received for so long, at all of them
        together."""
        self._limit_seconds = seconds
        for each in self._candidates:
            each.client.limit_waiting(self._seconds())

    def check(self) -> None:
        """Ask whether one of them answers and takes the token."""
        self._send(lambda client: client.check(), says=True)

    def put_segment(self, spool: Spool, number: int, content: bytes) -> None:
        """Send a segment; when this returns, it is durable at one of them."""
        self._send(lambda client: client.put_segment(spool, number, content), _key(SEGMENTS, spool), says=True)

    def report(self, spool: Spool, report: dict[str, object]) -> dict[str, Any]:
        """Send the agent's report of itself; the answer. The last one goes to each that had one before: it expects
        more otherwise."""
        answer = self._send(lambda client: client.report(spool, report), _key(REPORTS, spool))
        if report.get("ended"):
            self._inform_others(_key(REPORTS, spool), lambda client: client.report(spool, report))
        return answer

    def close_incarnation(self, spool: Spool) -> None:
        """Notify each collector that has segments of an incarnation that no more come; one must take it."""
        self._send(lambda client: client.close_incarnation(spool))
        self._inform_others(_key(SEGMENTS, spool), lambda client: client.close_incarnation(spool))

    def _send(
        self, request: Callable[[CollectorClient], Result], key: Key | None = None, *, says: bool = False
    ) -> Result:
        """The answer of the first collector that gives one.

        Arguments: `key`, what that one has then; `says`, whether the answer shows that it takes segments.
        """
        self._follow_changes()
        errors: list[ServiceError] = []
        for candidate in self._in_turn():
            try:
                self._probe(candidate)
                found = request(candidate.client)
            except (CollectorDownError, CollectorRefusesError) as error:
                errors.append(error)
                candidate.failure = str(error)
                candidate.passed_until = self._clock() + RETURN_SECONDS
                continue
            self._has_failed = False
            self._answered = candidate
            if key is not None:
                candidate.has.add(key)
            if says:
                self._note_taker(candidate)
            return found
        self._has_failed = True
        raise self._none_takes(errors)

    def _in_turn(self) -> list[_Candidate]:
        """Those to ask, in order: not those that failed a moment ago, unless all did."""
        now = self._clock()
        return [each for each in self._candidates if each.passed_until <= now] or list(self._candidates)

    def _probe(self, candidate: _Candidate) -> None:
        """Ask one that failed for its health. Raises: as `CollectorClient.check`."""
        if not candidate.failure or len(self._candidates) == 1:
            return
        candidate.client.limit_waiting(min(PROBE_SECONDS, self._seconds()))
        try:
            candidate.client.check()
        finally:
            candidate.client.limit_waiting(self._seconds())

    def _note_taker(self, candidate: _Candidate) -> None:
        """It has just taken something: say so if another one did before, or should."""
        before, self._current = self._current, candidate
        candidate.failure, candidate.passed_until = "", 0.0
        if before is candidate or len(self._candidates) == 1:
            return
        if before is None and candidate is self._candidates[0]:
            return
        self.switches_count += 1
        first = self._candidates[0]
        if candidate is not first and first.failure:
            self._notice(f"{first.failure}; segments go to {candidate.place} meanwhile", WARNING)
        else:
            self._notice(f"segments go to {candidate.place} now", INFO)

    def _none_takes(self, errors: Sequence[ServiceError]) -> ServiceError:
        """The first error; that of a collector which may take segments later comes before one of the operator's."""
        chosen = next((each for each in errors if isinstance(each, CollectorDownError)), errors[0])
        if len(errors) == 1:
            return chosen
        what = f"none of {len(errors)} collectors takes segments; {chosen.what}"
        return type(chosen)(what, chosen.next_step)

    def _inform_others(self, key: Key, request: Callable[[CollectorClient], object]) -> None:
        """Send to those that have this as well and did not fail lately; that they do not answer is no failure."""
        for each in self._candidates:
            if each is not self._answered and key in each.has and not each.failure:
                with suppress(CollectorDownError, CollectorRefusesError):
                    request(each.client)

    def _seconds(self) -> float:
        """How long a request to one of them may stand still."""
        if len(self._candidates) == 1:
            return self._limit_seconds or REQUEST_TIMEOUT_SECONDS
        if self._limit_seconds is None:
            return SILENCE_SECONDS
        return min(SILENCE_SECONDS, self._limit_seconds / len(self._candidates))

    def _follow_changes(self) -> None:
        """Look whether there are other collectors, at intervals, and after a failure."""
        now = self._clock()
        if not self._has_failed and now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        urls = self._urls
        with suppress(InputError):  # it is being written: those read before stay in use
            urls = tuple(self._urls_now()) if self._urls_now else urls
        if urls == self._urls and not self._has_failed and now < self._next_resolve:
            return
        self._urls, self._next_resolve = urls, now + RESOLVE_SECONDS
        places = self._ranked_places()
        if places != [each.place for each in self._candidates]:
            with suppress(InputError):  # certificates that cannot be used for it: those before stay in use
                self._replace(places)

    def _ranked_places(self) -> list[Place]:
        return rank(places_of(self._urls, self._addresses_of), self._host)

    def _replace(self, places: Sequence[Place]) -> None:
        """Have these collectors. Raises: InputError."""
        known = {each.place: each for each in self._candidates}
        found = [
            known.pop(place) if place in known else _Candidate(place, self._open_client(place)) for place in places
        ]
        self._candidates = found
        for gone in known.values():
            self._ended_failures = self._ended_failures.joined_with(gone.client.tls_failures)
            gone.client.close()
        for each in found:
            each.client.limit_waiting(self._seconds())
