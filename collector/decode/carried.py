"""What is known of connections from before the packets that are read: of a period, from the period before.

Messages of some protocols depend on those before them in their connection: HTTP/2's headers on a table that both ends
fill, executions of prepared statements on what was prepared, records of TLS on their number. The state of all such
connections is copied where the next period's packets begin, for each host, and taken up there. It stays in this
process, since it may hold secrets: after a restart, a host's captures from before the period are read for it again.

Of a connection without a handshake in the capture, the server is who is known to be one.
"""

from msgspec import Struct, field

from collector.capture_files.readers import Following


class Followed(Struct):
    """The state of connections by host: `before`, at the first packet to be read; `after`, before the first one with a
    stamp from `copy_at_ns` on, once the host has been read."""

    before: dict[str, Following]
    copy_at_ns: int
    after: dict[str, Following] = field(default_factory=dict)


class Carried(Struct, frozen=True):
    """What is known from before. `servers`: addresses and ports that answered a SYN; `followed`: None if nothing is to
    be carried on."""

    servers: frozenset[tuple[str, int]] = frozenset()
    followed: Followed | None = None


NOTHING_CARRIED = Carried()
