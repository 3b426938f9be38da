"""What is read from a line of a log, or a span of another tracer, before it is placed in a trace.

A record's times are of the clock that wrote it. `begin_host_ns` is the earliest moment that it is about: of a line
that is stamped when a request ends, the stamp less the duration. A stamp that is cut to seconds stands for the middle
of that second, with half of it as its uncertainty.
"""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct


class Kind(StrEnum):
    """Who wrote it."""

    LOG = "log"
    SPAN = "span"


class Phase(Struct, frozen=True):
    """A duration inside a request, as its record gives it: `queue`, `upstream`."""

    name: str  # of a fixed list: it is shown, and stays in a scrubbed trace
    duration_ns: int


class Address(Struct, frozen=True):
    """One end of a connection, as a record names it; port 0 where it names none."""

    addr: str
    port: int = 0


class Record(Struct, frozen=True):
    """A line of a log, or a span. Its texts have no secrets any more."""

    kind: Kind
    format: str
    source: str
    name: str
    text: str
    begin_host_ns: int
    duration_ns: int = 0
    uncertainty_ns: int = 0  # both ends are off by at most so much, by the clock that wrote it
    duration_uncertainty_ns: int = 0
    host: str | None = None
    service: str | None = None
    severity: str | None = None
    transaction_id: str = ""
    trace_id: str = ""
    span_id: str = ""
    parent_span_id: str = ""
    phases: tuple[Phase, ...] = ()
    # By these a request is found.
    is_request: bool = False  # it is about one whole request, as its server saw it
    side: str = ""  # of a span: "client" or "server" of a request, "" for neither
    client: Address | None = None
    method: str = ""
    target: str = ""
    status: int = 0


def phases_text(phases: Sequence[Phase]) -> str:
    """Phases as the column `phases` has them: `queue:0 connect:3000000`."""
    return " ".join(f"{phase.name}:{phase.duration_ns}" for phase in phases)


def parse_phases(text: str) -> tuple[Phase, ...]:
    """The phases of a value of that column."""
    return tuple(Phase(name, int(duration)) for name, duration in (each.split(":") for each in text.split()))
