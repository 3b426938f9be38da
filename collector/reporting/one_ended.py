"""What one end of a connection cannot show, said as such: how much of a wait was the server's, how much the network's.

Where only the client's host was captured (or the server's capture missed the packets), the time from the last byte of a
request to the first of its answer is one sum: two ways through the network, and the server's work. It has a ledger
column of its own, `server_or_network_ns`. A bound on the network's part is seen at that end: no exchange is faster than
a round trip, and the fastest on the connection (its handshake, or a request and the acknowledgement ahead of its
answer) was answered by the server's kernel alone. So the network's share is about that or more, and the server's the
rest or less.

Where only the server's host was captured, its work is known exactly. What its client waited besides is not there.
Where nothing shows whose capture it is (`collector.requests.unknown_ends`), neither is said.

Limits: a network that is faster at times than the fastest round trip seen has a smaller share. A middlebox that answers
handshakes itself (a proxy that no capture shows) stands nearer than the server: the network's share is then larger.
"""

from dataclasses import dataclass

import polars as pl

from collector.trace.durations import in_words

ONE_ENDED_COLUMNS = (
    *("trace_id", "depth", "client_host", "server_host", "critical_ns", "server_or_network_ns", "round_trip_ns"),
    "request_first_sent_trace_ns",
)
"""What `one_ended` asks of rows."""


@dataclass(frozen=True, slots=True)
class OneEnded:
    """What spans with one end hold; times in ns."""

    server_unseen_count: int  # spans on the critical path whose server's end was not seen
    server_or_network_ns: int  # their time that is the server's or the network's
    network_at_least_ns: int | None  # of that, by the fastest round trips seen; null where none was
    client_unseen_count: int  # roots whose client's end was not seen
    which_end_unknown: bool = False  # some were seen at one end, and nothing shows at which

    @property
    def words(self) -> str:
        """Sentences, each with a space before it; "" if both ends of everything were seen."""
        said = ""
        if self.which_end_unknown:
            said += (
                " Nothing shows which end was captured, so this may be the server's time alone, or the network's as "
                "well: say it with --address HOST=IP."
            )
        elif self.server_unseen_count:
            spent = in_words(self.server_or_network_ns)
            said += f" Of {spent} only the client's end was captured, which does not separate server and network: "
            if self.network_at_least_ns is None:
                said += "how much the network took does not show."
            else:
                said += f"the network took at least about {in_words(self.network_at_least_ns)} of it "
                said += "(the fastest round trips seen)."
        if self.client_unseen_count:
            said += " The client's end was not captured: what it waited for connections and the network is not in this."
        return said


def one_ended(rows: pl.DataFrame) -> OneEnded:
    """What `rows`, exchanges and spans joined, show from one end only."""
    blind = rows.filter(pl.col("server_or_network_ns") > 0)
    share = blind.select(pl.min_horizontal("round_trip_ns", "server_or_network_ns").filter(_has_bound()).sum()).item()
    has_bound = len(blind.filter(_has_bound())) > 0
    roots = rows.filter((pl.col("depth") == 0) & (pl.col("critical_ns") > 0))
    unknown = pl.col("client_host").is_null() & pl.col("server_host").is_null()
    return OneEnded(
        server_unseen_count=len(blind),
        server_or_network_ns=int(blind["server_or_network_ns"].sum()),
        network_at_least_ns=int(share) if has_bound else None,
        client_unseen_count=len(roots.filter(pl.col("request_first_sent_trace_ns").is_null())),
        which_end_unknown=len(blind.filter(unknown)) > 0,
    )


def _has_bound() -> pl.Expr:
    return pl.col("round_trip_ns").is_not_null()
