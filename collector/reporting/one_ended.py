"""States what one end of a connection cannot show: which part of a wait was the server's and which the network's.

If only the client's host was captured (or the server's capture missed the packets), the time from the last byte of a
request to the first byte of its answer is one sum: two network delays, and the server's work. It has a ledger column of
its own, `server_or_network_ns`. The captured end shows a bound for the network's part: no exchange is faster than a
round trip, and the fastest round trip on the connection (its handshake, or a request and an acknowledgement that
precedes its answer) was answered by the server's kernel alone. So the network's share is at least about that, and the
server's share at most the rest.

If only the server's host was captured, its work is known exactly, but not how long the client waited in addition. If it
is unknown which end was captured (`collector.requests.unknown_ends`), neither is stated.

Limits: if the network is at times faster than the fastest round trip captured, its share is smaller. If a middlebox
answers handshakes itself (a proxy that no capture shows), it is closer than the server: the network's share is larger.
"""

from collections.abc import Iterable

import polars as pl
from msgspec import Struct

from collector.trace.durations import in_words

ONE_ENDED_COLUMNS = (
    *("trace_id", "depth", "client_host", "server_host", "critical_ns", "server_or_network_ns", "round_trip_ns"),
    "request_first_sent_trace_ns",
)
"""Columns that `sum_one_ended` needs."""


MOST_NAMED = 2
"""Servers that are named in a sentence."""


class OneEnded(Struct, frozen=True):
    """Sums over spans of which only one end was captured; times in ns."""

    server_unseen_count: int  # spans on the critical path whose server's end was not captured
    server_or_network_ns: int  # their time that is the server's or the network's
    network_at_least_ns: int | None  # the network's least part of it, by the fastest round trips; null without any
    client_unseen_count: int  # roots whose client's end was not captured
    requests_count: int = 0
    which_end_unknown: bool = False  # some were captured at one end, and it is unknown at which
    incomplete_hosts: tuple[str, ...] = ()  # servers of all of them, if all were captured, but not to the end

    @property
    def words(self) -> str:
        """Sentences, each preceded by a space; "" if both ends of all spans were captured."""
        said = ""
        if self.which_end_unknown:
            said += (
                " Nothing shows which end was captured, so this may be the server's time alone, or the network's as "
                "well: say it with --address HOST=IP."
            )
        elif self.server_unseen_count:
            spent = in_words(self.server_or_network_ns)
            seen = "only the client's end was captured"
            if self.incomplete_hosts:
                seen = f"the capture of {' and '.join(self.incomplete_hosts)} does not hold all packets"
            said += f" Of {spent} {seen}, which does not separate server and network: "
            if self.network_at_least_ns is None:
                said += "how much the network took does not show."
            else:
                said += f"the network took at least about {in_words(self.network_at_least_ns)} of it "
                said += "(the fastest round trips seen)."
        if self.client_unseen_count:
            some = self.client_unseen_count < self.requests_count
            end = f"Of {self.client_unseen_count:,} of {self.requests_count:,} requests the" if some else "The"
            said += (
                f" {end} client's end was not captured: what it waited for connections and the network is not in this."
            )
        return said


def sum_one_ended(parts: Iterable[pl.DataFrame]) -> OneEnded:
    """The sums over exchanges and spans joined, which come in any number of `parts`."""
    found = [part.select(**_SUMS).row(0, named=True) for part in parts]
    servers = {server for each in found for server in each["servers"]}

    def total(name: str) -> int:
        return sum(each[name] for each in found)

    return OneEnded(
        server_unseen_count=total("blind"),
        server_or_network_ns=total("spent"),
        network_at_least_ns=total("share") if total("bounds") else None,
        client_unseen_count=total("headless"),
        requests_count=total("roots"),
        which_end_unknown=total("unknown") > 0,
        incomplete_hosts=() if None in servers or len(servers) > MOST_NAMED else tuple(sorted(servers)),
    )


_IS_BLIND = (pl.col("server_or_network_ns") > 0).fill_null(value=False)
_HAS_BOUND = _IS_BLIND & pl.col("round_trip_ns").is_not_null()
_IS_TIMED_ROOT = ((pl.col("depth") == 0) & (pl.col("critical_ns") > 0)).fill_null(value=False)
_SUMS = {
    "blind": _IS_BLIND.sum(),
    "spent": pl.col("server_or_network_ns").filter(_IS_BLIND).sum(),
    "share": pl.min_horizontal("round_trip_ns", "server_or_network_ns").filter(_HAS_BOUND).sum(),
    "bounds": _HAS_BOUND.sum(),
    "headless": (_IS_TIMED_ROOT & pl.col("request_first_sent_trace_ns").is_null()).sum(),
    "roots": _IS_TIMED_ROOT.sum(),
    "unknown": (_IS_BLIND & pl.col("client_host").is_null() & pl.col("server_host").is_null()).sum(),
    "servers": pl.col("server_host").filter(_IS_BLIND).unique().cast(pl.String).implode(),
}
