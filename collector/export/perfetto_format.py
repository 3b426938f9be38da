"""The messages of a Perfetto trace: tracks, slices, instants, flows and counters, as protobuf.

A file is a `Trace`: `TracePacket`s one after the other, so it is written a piece at a time. Tracks are announced before
their events. Events need not be in the order of time, but those of one track at one time keep that of the file, and a
flow begins before it ends. Names that come often are announced once (interned) and are numbers then.

Timestamps are ns on the clock `BOOTTIME`, Perfetto's own; here they count from 1970, as the snapshot of clocks at the
beginning says, so they are the trace times of every other export.

Source: perfetto.dev/docs/reference/synthetic-track-event, protos/perfetto/trace of google/perfetto.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum

from collector.export.protobuf import Part, field, fixed64, fixed64_fields, int_fields, message_fields, write_rows
from collector.trace.time_columns import Int64Array

BOOTTIME, REALTIME = 6, 1
"""Of the enumeration `BuiltinClock`."""
EXPLICIT = 3
"""Of `ChildTracksOrdering`."""
COUNT, SIZE_BYTES = 2, 3
"""Of `CounterDescriptor.Unit`."""
SEQUENCE = 1
"""All packets are of one sequence, as of one writer."""
STATE_CLEARED, NEEDS_STATE = 1, 2
"""Flags of a sequence: interned names begin here, or are needed."""


class EventType(IntEnum):
    """`TrackEvent.Type`."""

    SLICE_BEGIN = 1
    SLICE_END = 2
    INSTANT = 3
    COUNTER = 4


Arguments = Mapping[str, int | float | str]
"""What an event says beside its name, by name."""


def head(origin_ns: int, names: Sequence[str], arguments: Sequence[str], texts: Sequence[str]) -> bytes:
    """The first packet.

    Arguments: `origin_ns`, the time of the first event; `names` of events, of their `arguments`, and `texts` that are
    values of these: each is 1 and more in its list from then on.
    """
    clocks = b"".join(field(1, field(1, clock) + field(2, origin_ns)) for clock in (BOOTTIME, REALTIME))
    interned = b"".join(
        field(number, field(1, place) + field(2, name))
        for number, each in ((2, names), (3, arguments), (29, texts))
        for place, name in enumerate(each, 1)
    )
    about = field(8, origin_ns) + field(6, clocks + field(2, BOOTTIME))
    return _packet(about + field(12, interned), STATE_CLEARED)


def process_track(uuid: int, pid: int, name: str) -> bytes:
    """A process, whose tracks are in the order of their ranks; processes are in that of their numbers."""
    process = field(1, pid) + field(6, name) + field(3, pid)
    return _track(field(1, uuid) + field(3, process) + field(11, EXPLICIT))


def plain_track(uuid: int, name: str, rank: int, parent: int | None) -> bytes:
    """A track of slices and instants; those of one name and parent are shown as one."""
    return _track(field(1, uuid) + field(2, name) + field(12, rank) + _parent(parent))


def counter_track(uuid: int, name: str, rank: int, parent: int, unit: int) -> bytes:
    """A track of values over time."""
    return _track(field(1, uuid) + field(2, name) + field(12, rank) + _parent(parent) + field(8, field(3, unit)))


def _parent(uuid: int | None) -> bytes:
    return b"" if uuid is None else field(5, uuid)


def _track(descriptor: bytes) -> bytes:
    return _packet(field(60, descriptor))


def event(
    kind: EventType,
    at_ns: int,
    track: int,
    name: str = "",
    category: str = "",
    arguments: Arguments | None = None,
    flows: Sequence[int] = (),
    ending_flows: Sequence[int] = (),
) -> bytes:
    """An event of a track; `flows` begin in it, or end."""
    said = [field(9, kind), field(11, track)]
    if name:
        said.append(field(23, name))
    if category:
        said.append(field(22, category))
    said += (field(4, field(10, key) + _value(value)) for key, value in (arguments or {}).items())
    said += (fixed64(47, flow) for flow in flows)
    said += (fixed64(48, flow) for flow in ending_flows)
    return _packet(field(8, at_ns) + field(11, b"".join(said)))


def _value(value: float | str) -> bytes:
    number = 6 if isinstance(value, str) else 5 if isinstance(value, float) else 4
    return field(number, value)


def instants(
    at_ns: Int64Array,
    tracks: Int64Array,
    names: Int64Array,
    category: str,
    arguments: Mapping[int, Int64Array],
    texts: Mapping[int, Int64Array],
    flow: tuple[int, Int64Array] | None,
) -> bytes:
    """Many instants.

    Arguments: `names`, `arguments` and values of `texts` are interned ones; `flow`, the number of the field and the
    flows that begin there (47) or end (48).
    """
    said: list[Part] = [field(9, EventType.INSTANT), *int_fields(11, tracks), *int_fields(10, names)]
    said.append(field(22, category))
    for number, of_value in ((4, arguments), (17, texts)):
        for key, values in of_value.items():
            said += message_fields(4, [field(1, key), *int_fields(number, values)])
    if flow is not None:
        said += fixed64_fields(*flow)
    return _rows(at_ns, said)


def counts(at_ns: Int64Array, track: int, values: Int64Array) -> bytes:
    """The values of a counter from each time on."""
    return _rows(at_ns, [field(9, EventType.COUNTER), field(11, track), *int_fields(30, values)])


def _rows(at_ns: Int64Array, said: list[Part]) -> bytes:
    packet = [*int_fields(8, at_ns), *message_fields(11, said), field(10, SEQUENCE), field(13, NEEDS_STATE)]
    return write_rows(message_fields(1, packet), len(at_ns))


def _packet(fields: bytes, flags: int = NEEDS_STATE) -> bytes:
    return field(1, fields + field(10, SEQUENCE) + field(13, flags))
