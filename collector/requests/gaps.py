"""Finds holes: bytes that no capture has although their stream continues behind them.

TCP delivers a stream without holes. So if a later byte of a direction was captured (or any packet with a higher
sequence number), and bytes before it are in no capture of either end, the captures missed these bytes. A capture that
cannot keep up misses packets at random; one that is stopped for a while misses all packets of that time.

A hole falsifies the exchanges around it: an answer inside it looks missing, and the next answer looks like that of an
earlier request. So a connection is divided at its holes into *pieces*, each read as if the capture began and ended
there, and the exchanges on both sides of a hole have no known answer.

1. `gapped_flows` compares, for each direction of a connection, the length of its stream with the bytes captured.
2. `find_gaps` lists the holes of flows that lack bytes, with the time of the packet that reveals each.
3. `Pieces` assigns hops and heads to pieces, and assigns the exchanges of pieces to their connections again.

Invariants: a connection without a hole is one piece and is not changed. Limits: bytes missing at the end of a stream
are noticed only if its sender sends something later; data that was really lost and given up looks the same.

Source: RFC 9293 §3.4.
"""

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from collector import _core
from collector.capture_files.records import HeadKind
from collector.requests.exchanges import Built
from collector.requests.stream_evidence import StreamEvidence
from collector.trace.arrow import codes, indices, numbers
from collector.trace.schema import EXCHANGES, HopKind, HopState
from collector.trace.time_columns import Int64Array

KINDS = [str(kind) for kind in HopKind]
PLACED = frozenset({HopKind.DATA, HopKind.ACK, HopKind.FIN})
"""Kinds whose sequence number shows how far the sender has come; that of other kinds may be lower, or arbitrary."""
LEAST_BYTES = 2
"""Fewest missing bytes of a hole: a FIN uses a sequence number without a byte (RFC 9293 §3.4)."""
PIECE = 1 << 62
"""Ids of the pieces after the first begin here; no connection has so high an id."""
FLOW = ["connection_id", "from_client"]
GAPS = {
    "connection_id": pl.Int64,
    "from_client": pl.Boolean,
    "start": pl.Int64,  # stream offset of the missing bytes
    "end": pl.Int64,
    "at_ns": pl.Int64,  # trace time of the first packet behind them, at the server if captured there
}
MISSED = {"host": pl.String, "connection_id": pl.Int64, "gaps": pl.Int64, "bytes": pl.Int64, "at_ns": pl.Int64}
ANSWER = [name for name in EXCHANGES.names if name.startswith("response_") and name != "response_due_bytes"]
"""Columns that are unknown if a hole may contain the answer."""


def gapped_flows(hops: pa.Table) -> Int64Array:
    """The rows of all flows that lack bytes, whose hops are consecutive. Cost: ~5 ns a hop."""
    plain = ("connection_id", "from_client", "stream_start", "stream_end", "attempt")
    columns = {name: numbers(hops[name]) for name in plain} | {"kind": codes(hops["kind"], KINDS)}
    return _core.gapped_rows(columns, LEAST_BYTES)


def find_gaps(hops: pa.Table, rows: Int64Array, messages: pa.Table) -> pl.DataFrame:
    """The holes of flows (columns `GAPS`), by connection and time.

    Arguments: aligned `hops`; `rows`, from `gapped_flows`; `messages`, whose heads show where requests begin.
    """
    names = [*FLOW, "kind", "stream_start", "stream_end", "send_trace_ns", "receive_trace_ns"]
    mine = pl.DataFrame(hops.select(names).take(pa.array(rows))).with_columns(pl.col("kind").cast(pl.String))
    at = pl.when("from_client").then(pl.coalesce("receive_trace_ns", "send_trace_ns"))
    mine = mine.filter(pl.col("kind").is_in([str(kind) for kind in PLACED])).with_columns(
        at_ns=at.otherwise(pl.coalesce("send_trace_ns", "receive_trace_ns"))
    )
    reach = pl.col("stream_end").cum_max().shift().over(FLOW)
    ordered = mine.sort(*FLOW, "stream_start", "stream_end").with_columns(reach=reach.fill_null(0))
    lacking = pl.col("stream_start") - pl.col("reach") >= LEAST_BYTES
    found = ordered.filter(lacking).select(*FLOW, start="reach", end="stream_start", at_ns="at_ns")
    return _from_requests(found.drop_nulls("at_ns"), hops, messages).sort("connection_id", "at_ns")


def _from_requests(found: pl.DataFrame, hops: pa.Table, messages: pa.Table) -> pl.DataFrame:
    """Holes in answers, moved back to the last request before the data behind them, if that data is its answer: no
    answer came since, and no later request is missing."""
    names = [*FLOW, "stream_start", "stream_end", "send_trace_ns", "receive_trace_ns"]
    rows = np.flatnonzero(np.isin(numbers(hops["connection_id"]), found["connection_id"].unique().to_numpy()))
    data = pl.DataFrame(hops.select(names).take(pa.array(rows))).filter(pl.col("stream_end") > pl.col("stream_start"))
    spoken = data.filter(~pl.col("from_client")).select(
        "connection_id", spoke_ns=pl.coalesce("send_trace_ns", "receive_trace_ns")
    )
    known = _with_latest(found, "at_ns", _requests(found, data, messages), "asked_ns")
    known = known.with_columns(earlier_ns=pl.col("at_ns") - 1)
    known = _with_latest(known, "earlier_ns", spoken.drop_nulls().sort("spoke_ns"), "spoke_ns")
    answers_it = ~pl.col("from_client") & pl.col("last") & (pl.col("asked_ns") > pl.col("spoke_ns").fill_null(0))
    return known.with_columns(at_ns=pl.when(answers_it).then("asked_ns").otherwise("at_ns")).select(list(GAPS))


def _with_latest(rows: pl.DataFrame, at: str, events: pl.DataFrame, event_at: str) -> pl.DataFrame:
    """Rows with the last preceding event of their connection."""
    return rows.sort(at).join_asof(
        events, left_on=at, right_on=event_at, by="connection_id", strategy="backward", check_sortedness=False
    )


def _requests(found: pl.DataFrame, data: pl.DataFrame, messages: pa.Table) -> pl.DataFrame:
    """`connection_id, asked_ns` of requests with a head, by time, and whether no other can be missing right after
    it."""
    heads = pl.DataFrame(messages.select([*FLOW, "stream_offset", "head_kind"])).filter(
        pl.col("from_client") & (pl.col("head_kind") == HeadKind.REQUEST)
    )
    began = data.join(heads.unique(), left_on=[*FLOW, "stream_start"], right_on=[*FLOW, "stream_offset"])
    began = began.select(
        "connection_id", "stream_start", asked_ns=pl.coalesce("receive_trace_ns", "send_trace_ns")
    ).drop_nulls()
    began = began.sort("connection_id", "stream_start").with_columns(
        next_start=pl.col("stream_start").shift(-1).over("connection_id")
    )
    missing = found.filter("from_client").select("connection_id", hole="start").sort("hole")
    began = began.sort("stream_start").join_asof(
        missing, left_on="stream_start", right_on="hole", by="connection_id", strategy="forward",
        check_sortedness=False,
    )  # fmt: skip
    behind = pl.col("hole").is_null() | (pl.col("next_start") <= pl.col("hole")).fill_null(value=False)
    return began.select("connection_id", "asked_ns", last=behind).sort("asked_ns")


class Pieces(Struct, frozen=True):
    """Connections divided at their holes: `gaps`, with columns `GAPS` and `number`, the id of the piece behind each."""

    gaps: pl.DataFrame

    def hops(self, hops: pa.Table) -> pa.Table:
        """`hops`, with those behind a hole assigned to the piece that begins there."""
        server = pl.when("from_client").then(pl.coalesce("receive_trace_ns", "send_trace_ns"))
        other = pl.coalesce("send_trace_ns", "receive_trace_ns")
        rows = pl.DataFrame(hops.select([*FLOW, "send_trace_ns", "receive_trace_ns"]))
        return _with_ids(hops, self._piece(rows.select("connection_id", at_ns=server.otherwise(other))))

    def heads(self, messages: pa.Table, hops: pa.Table) -> pa.Table:
        """`messages`, each assigned to the piece of its bytes. Arguments: `hops`, as given to the method `hops`."""
        mine = numbers(hops["connection_id"]) if hops.num_rows else np.empty(0, np.int64)
        rows = np.flatnonzero(np.isin(mine, self.gaps["connection_id"].to_numpy()))
        some = pl.DataFrame(hops.select([*FLOW, "stream_start", "stream_end"]).take(pa.array(rows)))
        pieces = numbers(self.hops(hops)["connection_id"])[rows]
        places = some.with_columns(piece=pl.Series(pieces)).filter(pl.col("stream_end") > pl.col("stream_start"))
        heads = pl.DataFrame(messages.select([*FLOW, "stream_offset"])).with_row_index("row")
        found = heads.sort("stream_offset").join_asof(
            places.sort("stream_start"), left_on="stream_offset", right_on="stream_start", by=FLOW,
            check_sortedness=False,
        )  # fmt: skip
        ids = found.sort("row").select(pl.coalesce("piece", "connection_id")).to_series()
        return _with_ids(messages, ids.to_numpy())

    def connections(self, connections: pa.Table) -> pa.Table:
        """`connections`, and the pieces behind holes, which have no captured handshake."""
        of, ids = self._ids()
        known = numbers(connections["connection_id"])
        order = np.argsort(known)
        rows = order[np.searchsorted(known[order], of)]
        more = connections.take(pa.array(rows))
        for name in ("client_isn", "server_isn"):
            at = more.schema.get_field_index(name)
            more = more.set_column(at, name, pa.nulls(len(rows), more.schema.field(name).type))
        return pa.concat_tables([connections, _with_ids(more, ids).cast(connections.schema)])

    def rejoin(self, built: Built, hops: pa.Table) -> Built:
        """`built` with the exchanges of pieces assigned to their connections. Arguments: the original `hops`.

        Exchanges that lie at a hole have no known answer.
        """
        exchanges, pieces = built.exchanges, numbers(built.exchanges["connection_id"])
        at_hole = self._at_hole(built.exchanges)
        for name in (*ANSWER, "status", "given_up_trace_ns"):
            exchanges = _null_where(exchanges, name, at_hole)
        index = exchanges.schema.get_field_index("complete")
        exchanges = exchanges.set_column(index, "complete", pa.array(numbers(exchanges["complete"]) & ~at_hole))
        exchanges = _with_ids(exchanges, self._whole(pieces))
        index = built.hops.schema.get_field_index("connection_id")
        whole_hops = built.hops.set_column(index, "connection_id", hops["connection_id"])
        streams, late, said = (self._of_whole(rows) for rows in built.streams)
        streams = streams.unique("connection_id", keep="first", maintain_order=True)
        return built._replace(exchanges=exchanges, hops=whole_hops, streams=StreamEvidence(streams, late, said))

    def without_endings(self, exchanges: pa.Table) -> pa.Table:
        """`exchanges` without an ending where a hole may contain the answer."""
        holed = np.isin(numbers(exchanges["connection_id"]), self.gaps["connection_id"].to_numpy())
        unknown = holed & exchanges["response_bytes"].is_null().to_numpy()
        for name in ("ending", "closed_trace_ns", "given_up_trace_ns"):
            exchanges = _null_where(exchanges, name, unknown)
        return exchanges

    def crossings(self, crossings: pa.Table) -> pa.Table:
        """`crossings` with those of connections with gaps also for each piece: their places show of which."""
        of, ids = self._ids()
        pieces = pl.DataFrame({"connection_id": of, "piece": ids})
        rows = pl.DataFrame(crossings)
        again = rows.join(pieces, on="connection_id").drop("connection_id").rename({"piece": "connection_id"})
        return pl.concat([rows, again.select(rows.columns)]).to_arrow()

    def _ids(self) -> tuple[Int64Array, Int64Array]:
        """For each hole, its connection and the id of the piece behind it."""
        return self.gaps["connection_id"].to_numpy(), np.arange(len(self.gaps), dtype=np.int64) + PIECE

    def _of_whole(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows with the connection of each piece."""
        return rows.with_columns(connection_id=pl.Series(self._whole(rows["connection_id"].to_numpy()), dtype=pl.Int64))

    def _whole(self, ids: Int64Array) -> Int64Array:
        """The connection of each piece."""
        of, _ = self._ids()
        return np.where(ids < PIECE, ids, of[np.maximum(ids - PIECE, 0).clip(max=max(len(of) - 1, 0))])

    def _piece(self, rows: pl.DataFrame) -> Int64Array:
        """The piece that each time of a connection falls into (`connection_id`, `at_ns`)."""
        _, ids = self._ids()
        cuts = self.gaps.select("connection_id", "at_ns", piece=pl.Series(ids)).sort("at_ns", "piece")
        found = rows.with_row_index("row").sort("at_ns").join_asof(
            cuts, on="at_ns", by="connection_id", check_sortedness=False
        )  # fmt: skip
        return found.sort("row").select(pl.coalesce("piece", "connection_id")).to_series().to_numpy()

    def _at_hole(self, exchanges: pa.Table) -> NDArray[np.bool_]:
        """Whether each exchange is the last before a hole and incomplete, or the first behind one without both
        heads."""
        piece = numbers(exchanges["connection_id"])
        whole = self._whole(piece)
        count = len(piece)
        rows = pl.DataFrame({"piece": piece, "whole": whole, "row": np.arange(count)}).with_columns(
            readable=pl.Series((exchanges["method"].is_valid().to_numpy()) & exchanges["status"].is_valid().to_numpy()),
            whole_answer=pl.Series(_is_whole(exchanges)),
        )
        last_piece = self.gaps.select("connection_id", piece=pl.Series(self._ids()[1])).group_by("connection_id").max()
        ends = rows.group_by("piece").agg(pl.col("row", "whole_answer").last(), pl.col("whole").first())
        ends = ends.join(last_piece, left_on="whole", right_on="connection_id", suffix="_last")
        cut = (pl.col("piece") != pl.col("piece_last")) & ~pl.col("whole_answer")
        before = ends.filter(cut)["row"].to_numpy()
        behind = rows.filter(pl.col("piece") >= PIECE).group_by("piece").agg(
            pl.col("row").min(), pl.col("readable").first()
        )  # fmt: skip
        found = np.zeros(count, dtype=np.bool_)
        found[before] = True
        found[behind.filter(~pl.col("readable"))["row"].to_numpy()] = True
        return found


def _is_whole(exchanges: pa.Table) -> NDArray[np.bool_]:
    """Whether each answer has the length that its head announces."""
    due, have = exchanges["response_due_bytes"], exchanges["response_bytes"]
    return pc.fill_null(pc.greater_equal(have, due), False).to_numpy()


def missed_bytes(gaps: pl.DataFrame, hops: pa.Table) -> pl.DataFrame:
    """The bytes that the captures of each host lack, by the connections' holes (columns `MISSED`).

    Arguments: `hops` of the connections; a host captured a connection if it has a packet of it. `host` is null if it is
    unknown which end the capture belongs to.
    """
    mine = np.isin(numbers(hops["connection_id"]), gaps["connection_id"].to_numpy())
    names = ["connection_id", "send_host", "send_frame", "receive_host", "receive_frame"]
    rows = pl.DataFrame(hops.select(names).take(pa.array(np.flatnonzero(mine))))
    ends = [
        rows.filter(pl.col(f"{end}_frame").is_not_null()).select(
            "connection_id", host=pl.col(f"{end}_host").cast(pl.String)
        )
        for end in ("send", "receive")
    ]
    of = gaps.group_by("connection_id", maintain_order=True).agg(
        gaps=pl.len(), bytes=(pl.col("end") - pl.col("start")).sum(), at_ns=pl.col("at_ns").min()
    )
    seen = pl.concat(ends).unique()
    named = pl.col("host").is_not_null() | pl.col("host").is_null().all().over("connection_id")
    found = seen.filter(named).join(of, on="connection_id")
    return found.select(list(MISSED)).cast(pl.Schema(MISSED)).sort("host", "connection_id")


def doubt_losses(hops: pa.Table) -> pa.Table:
    """`hops` with unmatched ACKs, FINs and the like `unmatched` instead of lost if the capture at the other end missed
    bytes of that connection: nobody acknowledges them, so nothing shows that they did not arrive."""
    states, known = indices(hops["state"])
    dropped, lost = (known.index(name) if name in known else -1 for name in (HopState.CAPTURE_DROPPED, HopState.LOST))
    if dropped < 0 or lost < 0 or not (states == dropped).any() or not (states == lost).any():
        return hops
    rows = np.flatnonzero((states == dropped) | (states == lost))
    names = ["connection_id", "send_host", "receive_host", "receive_trace_ns", "stream_start", "stream_end"]
    some = pl.DataFrame(hops.select(names).take(pa.array(rows)))
    lacking = pl.when(pl.col("receive_trace_ns").is_null()).then("receive_host").otherwise("send_host")
    way = ["connection_id", "lacking"]
    judged = some.with_columns(
        lacking=lacking.cast(pl.String),
        row=pl.Series(rows),
        is_lost=pl.Series(states[rows] == lost),
        empty=pl.col("stream_start") == pl.col("stream_end"),
    ).with_columns(missed=(~pl.col("is_lost")).sum().over(way), lost=pl.col("is_lost").sum().over(way))
    doubted = judged.filter(pl.col("is_lost") & pl.col("empty") & (pl.col("missed") > pl.col("lost")))["row"].to_numpy()
    every = pa.array([str(state) for state in HopState])
    places = np.array([every.index(name).as_py() for name in known] or [0], dtype=np.int32)[states]
    places[doubted] = every.index(str(HopState.UNMATCHED)).as_py()
    index = hops.schema.get_field_index("state")
    return hops.set_column(index, "state", pa.DictionaryArray.from_arrays(pa.array(places), every))


def _null_where(table: pa.Table, name: str, rows: NDArray[np.bool_]) -> pa.Table:
    field = table.schema.field(name)
    missing = None if field.nullable else 0
    column = pc.if_else(pa.array(~rows), table[name], pa.scalar(missing, field.type))
    return table.set_column(table.schema.get_field_index(name), field, column)


def _with_ids(table: pa.Table, ids: Int64Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index("connection_id"), "connection_id", pa.array(ids, pa.int64()))
