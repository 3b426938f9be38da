"""The packets of a partition, interpreted by what is known of all captures."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct, field
from numpy.typing import NDArray

from collector.capture_files.owners import Owners
from collector.capture_files.records import Columns
from collector.decode.forwarders import forwarded_rows
from collector.decode.partitions import HostView, Packets

NO_COPIES: NDArray[np.uint32] = np.zeros(0, dtype=np.uint32)


class Decoded(Struct, frozen=True):
    """Packets of some connections, from all hosts, and excerpts of what they carry.

    `events`: columns for the core's matching (`EVENT_COLUMNS`, and those that `partitions.Taken` adds); their `*_place`
    and address columns are indices in `hosts`, `points` and `addresses`. `excerpts`: columns `EXCERPT_COLUMNS` with
    their bytes, and `event_row`, each one's row in `events`. `forwarded`: rows seen by a host that only forwards them
    (`collector.decode.forwarders`); None if there are none. `owners`: what agents state of who owns connections, by
    host; hosts without a statement are left out. `copies`: for each capture, how many packets are omitted as copies.
    `servers`: ends of connections (as in columns `*_end`) and ports that are known to be servers'.
    """

    events: Columns
    excerpts: Columns
    hosts: pa.StringArray
    points: pa.StringArray
    addresses: pa.StringArray
    forwarded: NDArray[np.bool_] | None = None
    owners: Mapping[str, Owners] = field(default_factory=dict)
    copies: NDArray[np.uint32] = field(default_factory=lambda: NO_COPIES)
    servers: list[tuple[int, int]] = field(default_factory=list)


class Decoder(Struct, frozen=True):
    """What is needed to take and interpret the packets of a partition, in any process that reaches `packets`.

    `views`, one for each capture; `hosts` and `points`, names; `addresses`, texts in their order, whose position is an
    address's rank; `is_loopback` and `numbers`, by rank; `forwarded`, as from `forwarders.forwarded_pairs`; `servers`,
    ports that are known to be servers', by the rank of their address.
    """

    packets: Packets
    views: Sequence[HostView]
    hosts: pa.StringArray
    points: pa.StringArray
    addresses: pa.StringArray
    is_loopback: NDArray[np.bool_]
    numbers: NDArray[np.int64]
    forwarded: Sequence[frozenset[tuple[int, int]]]
    owners: Mapping[str, Owners]
    servers: Mapping[int, Sequence[int]]

    def take(self, number: int) -> Decoded | None:
        """The events and excerpts of one partition, by host and frame; None if it is empty. Take each only once."""
        taken = self.packets.take(number, self.views, self.is_loopback)
        if taken is None:
            return None
        addresses = self.addresses.take(pa.array(taken.addresses))
        forwarded = forwarded_rows(taken.events, self.forwarded, self.numbers[taken.addresses])
        columns = (taken.events, taken.excerpts, self.hosts, self.points, addresses)
        return Decoded(*columns, forwarded, self.owners, taken.copies, self._servers(taken.addresses))

    def _servers(self, addresses: NDArray[np.uint32]) -> list[tuple[int, int]]:
        """The servers of a partition with these addresses (ranks). An address of loopback is an end of its own at each
        host, as the core numbers it."""
        found: list[tuple[int, int]] = []
        count = len(addresses)
        ranks = np.fromiter(self.servers, np.uint32, len(self.servers))
        for place in np.flatnonzero(np.isin(addresses, ranks)).tolist():
            rank = int(addresses[place])
            hosts = range(1, len(self.hosts) + 1) if self.is_loopback[rank] else range(1)
            found += ((place + host * count, port) for host in hosts for port in self.servers[rank])
        return found
