"""Which connections are streams by what other connections of their servers show, and what is left out of requests."""

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from collector.reporting.stream_summary import summarise_streams
from collector.requests.stream_evidence import CANDIDATE, StreamEvidence
from collector.requests.streams import StreamJudge, answering_streams, requests_of, stream_ids, with_streams
from collector.trace.schema import EXCHANGES, STREAMS, conform

MS = 1_000_000
READER, OTHER = 1, 2


def candidate(turns: int) -> pl.DataFrame:
    row = dict.fromkeys(STREAMS.names) | {"connection_id": READER, "turns": turns, "server": 7, "reason": CANDIDATE}
    kinds = {"connection_id": pl.Int64, "turns": pl.Int64, "server": pl.UInt64, "reason": pl.String}
    kinds |= dict.fromkeys(("client_host", "server_host", "service", "protocol", "evidence", "closing"), pl.String)
    numbers = {name: pl.Int64 for name in STREAMS.names if name.endswith(("_ns", "_count", "_bytes"))}
    return pl.DataFrame([row], schema=kinds | numbers).with_columns(begin_trace_ns=pl.lit(5, pl.Int64))


def judge_of(late: list[tuple[int, bool]], said: list[tuple[int, int]], turns: int) -> StreamJudge:
    """Arguments: when the reader's server spoke late and whether it was asked; messages: on which connection, when."""
    judge = StreamJudge()
    judge.add(
        StreamEvidence(
            candidate(turns),
            pl.DataFrame([(READER, *one) for one in late], schema=["connection_id", "at_ns", "asked"], orient="row"),
            pl.DataFrame(
                [(7, *one) for one in said],
                schema={"server": pl.UInt64, "connection_id": pl.Int64, "at_ns": pl.Int64},
                orient="row",
            ),
        )
    )
    return judge


def every(step_ms: float, count: int, at_ms: float = 0) -> list[int]:
    return [round((at_ms + step_ms * number) * MS) for number in range(count)]


def by(connection: int, times: list[int]) -> list[tuple[int, int]]:
    return [(connection, at) for at in times]


PUBLISHED = every(100, 20)
CASES = {
    "a queue's reader, answered when somebody else puts something in": (
        [(at + 80_000, True) for at in PUBLISHED],
        by(OTHER, PUBLISHED) + by(READER, [at + 300_000 for at in PUBLISHED]),
        20,
        True,
    ),
    "a subscriber, sent what others publish, that asks now and then": (
        [(at + 80_000, False) for at in PUBLISHED],
        by(OTHER, PUBLISHED) + by(READER, every(500, 4, 30)),
        4,
        True,
    ),
    "a slow server, asked by another client at its own times": (
        [(at, True) for at in every(130, 20, 31)],
        by(OTHER, every(100, 27)) + by(READER, every(130, 20, 1)),
        20,
        False,
    ),
    "a statement that waits for another's lock, among quick ones": (
        [(at + 80_000, True) for at in PUBLISHED],
        by(OTHER, PUBLISHED) + by(READER, every(25, 80)),
        80,
        False,
    ),
    "one of 50 clients of a server that answers one at a time, each asking again at once": (
        [(at, True) for at in every(50, 40, 50.9)],
        by(OTHER, every(1, 2100)) + by(READER, every(50, 40, 1)),
        40,
        False,
    ),
    "one of many clients in step, of a server that always takes as long": (
        [(at, True) for at in every(80, 40, 45)],
        by(OTHER, every(4, 900)) + by(READER, every(80, 40, 1)),
        40,
        False,
    ),
    "a server that speaks by itself as often as when others have spoken": (
        [(at + (80_000, 40 * MS)[number % 2], False) for number, at in enumerate(PUBLISHED)],
        by(OTHER, PUBLISHED),
        1,
        False,
    ),
    "a stream whose server speaks by itself": (
        [(at, False) for at in every(97, 20, 33)],
        by(OTHER, PUBLISHED),
        1,
        False,
    ),
    "too few to rule out chance": ([(at + 80_000, False) for at in PUBLISHED[:2]], by(OTHER, PUBLISHED[:2]), 1, False),
}


@pytest.mark.parametrize("case", CASES)
def test_who_waits_for_others_is_a_stream(case):
    late, said, turns, expected = CASES[case]
    judge = judge_of(late, said, turns)
    assert judge.triggered_connections().tolist() == [READER] * expected
    assert judge.table().num_rows == expected


def test_where_nobody_says_anything_nobody_waits_for_others():
    """The other messages of that server were seen by no capture."""
    assert judge_of([(at, True) for at in PUBLISHED], [], 20).triggered_connections().tolist() == []


def test_clients_in_step_at_a_slow_server_do_not_wait_for_each_other():
    answered = {READER: every(391, 6, 392.5), OTHER: every(391, 6, 392)}
    asked = {READER: every(391, 6, 1.7), OTHER: every(391, 6, 1.2)}
    asked[OTHER] = [at + 300_000 for at in answered[OTHER]]  # again, as soon as it is answered
    rows = [(connection, at, True) for connection, times in answered.items() for at in times]
    said = [(7, connection, at) for connection, times in asked.items() for at in times]
    candidates = [candidate(6).with_columns(connection_id=pl.lit(one, pl.Int64)) for one in answered]
    judge = StreamJudge()
    kinds = {"server": pl.UInt64, "connection_id": pl.Int64, "at_ns": pl.Int64}
    late = pl.DataFrame(rows, schema=["connection_id", "at_ns", "asked"], orient="row")
    judge.add(StreamEvidence(pl.concat(candidates), late, pl.DataFrame(said, schema=kinds, orient="row")))
    assert judge.triggered_connections().tolist() == []


def test_a_stream_says_why_it_is_one():
    late, said, turns, _ = CASES["a subscriber, sent what others publish, that asks now and then"]
    [row] = judge_of(late, said, turns).table().to_pylist()
    assert (row["reason"], row["evidence"]) == (
        "triggered",
        "its server spoke 20 of 20 times when another client had spoken",
    )


def test_without_any_stream_there_is_an_empty_table():
    assert StreamJudge().table().schema == STREAMS
    assert StreamJudge().triggered_connections().tolist() == []


def exchanges(*streams: bool | None) -> pa.Table:
    rows = {"exchange_id": [*range(1, len(streams) + 1)], "connection_id": [*range(11, 11 + len(streams))]}
    return conform("exchanges", pa.table(rows | {"is_stream": pa.array(streams, pa.bool_())}))


def test_brokers_of_amqp_and_turns_that_overlap_still_answer() -> None:
    rows = [("several", "unknown"), ("word", "amqp"), ("word", "mqtt"), ("crossed", "unknown"), ("upgrade", "http/1.1")]
    columns = zip(*((number, *row) for number, row in enumerate(rows)), strict=True)
    streams = pa.table(dict(zip(("connection_id", "reason", "protocol"), map(pa.array, columns), strict=True)))
    assert answering_streams(streams).to_pylist() == [0, 1, 3]


def test_what_is_a_stream_is_no_request():
    table = exchanges(False, True, None)
    assert requests_of(table)["exchange_id"].to_pylist() == [1, 3]
    assert stream_ids(table).to_list() == [2]
    more = with_streams(table, np.array([13]))
    assert more["is_stream"].to_pylist() == [False, True, True]
    assert more.schema == EXCHANGES


def test_streams_of_one_service_with_the_same_evidence_are_one_line():
    rows = [
        {"connection_id": 1, "service": "cache", "reason": "word", "evidence": "SUBSCRIBE (redis)", "protocol": "redis",
         "to_client_count": 20, "to_server_count": 1, "to_client_bytes": 900, "to_server_bytes": 30,
         "delay_median_ns": 30_000, "delay_p99_ns": 50_000, "uncertainty_ns": 2_000, "longest_idle_ns": 5 * MS,
         "begin_trace_ns": 0, "end_trace_ns": 9 * MS},
        {"connection_id": 2, "service": "cache", "reason": "word", "evidence": "SUBSCRIBE (redis)", "protocol": "redis",
         "to_client_count": 5, "to_server_count": 1, "to_client_bytes": 90, "to_server_bytes": 30,
         "longest_idle_ns": 8 * MS},
        {"connection_id": 3, "service": "db", "reason": "unasked", "evidence": "its server spoke 9 times …",
         "protocol": "unknown", "to_client_count": 9, "to_server_count": 1, "to_client_bytes": 90,
         "to_server_bytes": 9},
    ]  # fmt: skip
    found = summarise_streams(conform("streams", pa.Table.from_pylist(rows)))
    assert (found.count, found.messages_count, found.bytes) == (3, 37, 1_149)
    assert [(one.name, one.count, one.messages_count, one.longest_idle_ns) for one in found.groups] == [
        ("SUBSCRIBE (redis)", 2, 27, 8 * MS),
        ("its server speaks unasked", 1, 10, None),
    ]
    assert found.groups[0].delay_words == "delay median 30.0 µs ± 2.0 µs, p99 50.0 µs"
    assert [line.duration_ns for line in found.lines] == [9 * MS, None, None]
