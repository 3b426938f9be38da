"""HTTP/2: streams that either side resets, and connections of which not all frames are known."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from collector.capture_files.records import HeadKind
from collector.requests.endings import with_endings
from collector.requests.exchanges import Built, build_exchanges
from collector.requests.outcomes import with_outcomes
from collector.requests.streams import StreamJudge
from collector.requests.unread_connections import UNREAD, unread_counters
from testkit.tables import BASE_NS, table
from tests.helpers.scripts import play
from tests.helpers.service_ports import names_of_ports

DATA, HEADERS, RST_STREAM, SETTINGS = 0, 1, 3, 4
END_HEADERS, END_BOTH = 4, 5
HEADER_BYTES = 9
PREFACE, PREFACE_BYTES = 0x100, 24
US = 1_000

Frame = tuple[bool, int, int, int, int, int]
"""From the client, when it is sent in µs; type, flags, stream, bytes behind its header."""
BEGUN: tuple[Frame, ...] = ((True, 10, SETTINGS, 0, 0, 12), (False, 20, SETTINGS, 0, 0, 18))
ASKED: Frame = (True, 100, HEADERS, END_BOTH, 1, 40)
ANSWERED: tuple[Frame, ...] = ((False, 900, HEADERS, END_HEADERS, 1, 20), (False, 950, DATA, 1, 1, 300))
HALF: tuple[Frame, ...] = ((False, 900, HEADERS, END_HEADERS, 1, 20), (False, 950, DATA, 0, 1, 300))


def exchanges_and_hops(
    frames: Sequence[Frame], unread: int | None = None, closed_by_client: bool | None = None
) -> tuple[Built, pa.Table]:
    """Exchanges of a connection of a packet for each frame, and its hops; one frame's header was not captured."""
    script, heads, reach = "client:40000 > web:8080\n 0 > syn\n", [], [0, 0]
    heads.append(_head(True, PREFACE_BYTES, PREFACE, 0, 0, PREFACE_BYTES))
    reach[1] = PREFACE_BYTES
    script += f" 5 > 0:{PREFACE_BYTES}\n"
    for number, (from_client, at_us, kind, flags, stream, length) in enumerate((*BEGUN, *frames)):
        start, whole = reach[from_client], HEADER_BYTES + length
        if number - len(BEGUN) != unread:
            heads.append(_head(from_client, start + HEADER_BYTES, kind, flags, stream, whole))
        script += f" {at_us} {'>' if from_client else '<'} {start}:{start + whole}\n"
        reach[from_client] += whole
    if closed_by_client is not None:
        script += f" 5000 {'>' if closed_by_client else '<'} fin@{reach[closed_by_client]}\n"
    tables = play(script)
    made = build_exchanges(tables.hops, table("messages", heads), tables.connections, names_of_ports({8080: "web"}))
    return made, tables.hops


def _head(from_client: bool, place: int, kind: int, flags: int, stream: int, length: int) -> dict[str, object]:
    return {
        "connection_id": 1, "from_client": from_client, "stream_offset": place, "head_kind": int(HeadKind.HTTP2_FRAME),
        "head_flags": flags, "head_len": length, "stream_id": stream, "frame_kind": kind, "result_code": -1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ((ASKED, *ANSWERED), [(None, None, "unknown")]),
        ((ASKED, (True, 500, RST_STREAM, 0, 1, 4)), [("client_reset_stream", 500, "abandoned")]),
        ((ASKED, *HALF, (True, 990, RST_STREAM, 0, 1, 4)), [("client_reset_stream", 990, "abandoned")]),
        ((ASKED, (False, 500, RST_STREAM, 0, 1, 4)), [("server_reset_stream", 520, "failed")]),
        ((ASKED, *HALF, (False, 990, RST_STREAM, 0, 1, 4)), [("server_reset_stream", 1_010, "failed")]),
        ((ASKED, *ANSWERED, (True, 990, RST_STREAM, 0, 1, 4)), [(None, None, "unknown")]),
        (
            (ASKED, (True, 150, HEADERS, END_BOTH, 3, 40), (True, 500, RST_STREAM, 0, 3, 4), *ANSWERED),
            [(None, None, "unknown"), ("client_reset_stream", 500, "abandoned")],
        ),
    ],
    ids=[
        "answered", "by its client", "by its client, in the middle of the answer", "by its server",
        "by its server, in the middle of the answer", "after the whole answer", "one of two at once",
    ],
)  # fmt: skip
def test_who_reset_a_stream(frames: tuple[Frame, ...], expected: list[tuple[str | None, int | None, str]]) -> None:
    made, _ = exchanges_and_hops(frames)
    rows = with_outcomes(with_endings(made.exchanges, made.hops)).to_pylist()
    at = [row["closed_trace_ns"] and (row["closed_trace_ns"] - BASE_NS) // US for row in rows]
    assert [(row["ending"], when, row["outcome"]) for row, when in zip(rows, at, strict=True)] == expected
    assert {row["protocol"] for row in rows} == {"http/2"}


@pytest.mark.parametrize(
    ("frames", "closed_by_client", "expected"),
    [
        ((ASKED, *HALF), False, ("server_closed", "failed", False)),
        ((ASKED, *HALF), True, ("client_closed", "abandoned", False)),
        ((ASKED, *HALF), None, (None, "unknown", False)),
        ((ASKED, *ANSWERED), False, (None, "unknown", True)),
    ],
    ids=["by its server", "by its client", "by nobody", "after the whole answer"],
)
def test_who_closed_the_connection_in_the_middle_of_an_answer(
    frames: tuple[Frame, ...], closed_by_client: bool | None, expected: tuple[str | None, str, bool]
) -> None:
    made, _ = exchanges_and_hops(frames, closed_by_client=closed_by_client)
    [row] = with_outcomes(with_endings(made.exchanges, made.hops)).to_pylist()
    assert (row["ending"], row["outcome"], row["complete"]) == expected


@pytest.mark.parametrize(("unread", "count"), [(None, 0), (0, 1), (1, 1)])
def test_a_connection_with_a_frame_missing_is_counted_and_its_requests_are_not(unread: int | None, count: int) -> None:
    made, _ = exchanges_and_hops((ASKED, *ANSWERED, (True, 960, SETTINGS, 0, 0, 6)), unread)
    judge = StreamJudge()
    judge.add(made.streams)
    counters = unread_counters({}, judge.table(), are_cut=True)
    assert [(counter.name, counter.count) for counter in counters] == ([(UNREAD, 1)] if count else [])
    assert all(row["is_stream"] for row in made.exchanges.to_pylist()) is bool(count)


@pytest.mark.parametrize(
    ("head_code", "trailer_code", "outcome"),
    [
        (-1, None, "ok"),
        (-2, 0, "ok"),
        (-2, 5, "ok"),
        (-2, 14, "failed"),
        (-2, 8, "failed"),
        (-2, None, "unknown"),
        (13, None, "failed"),
    ],
)
def test_a_result_code_decides_with_the_status(head_code: int, trailer_code: int | None, outcome: str) -> None:
    script = "client:40000 > web:8080\n 0 > syn\n 5 > 0:24\n 10 > 24:36\n 20 < 0:18\n 100 > 36:85\n 900 < 18:127\n"
    heads = [
        _head(True, PREFACE_BYTES, PREFACE, 0, 0, PREFACE_BYTES),
        _head(True, 33, SETTINGS, 0, 0, 12),
        _head(False, 9, SETTINGS, 0, 0, 18),
        _head(True, 45, HEADERS, END_BOTH, 1, 49) | {"method": "POST", "target": "/shop.Cart/Get", "result_code": -1},
        _head(False, 27, HEADERS, END_HEADERS, 1, 29) | {"status": 200, "result_code": head_code},
        _head(False, 56, DATA, 0, 1, 50),
        _head(False, 106, HEADERS, END_BOTH, 1, 30) | {"result_code": -1 if trailer_code is None else trailer_code},
    ]
    for head in heads:
        head.setdefault("result_code", -1)
    tables = play(script)
    made = build_exchanges(tables.hops, table("messages", heads), tables.connections, names_of_ports({8080: "web"}))
    [row] = with_outcomes(with_endings(made.exchanges, made.hops)).to_pylist()
    last = head_code if trailer_code is None else trailer_code
    assert (row["method"], row["target"], row["status"]) == ("POST", "/shop.Cart/Get", 200)
    assert (row["result_code"], row["outcome"]) == (None if last == -1 else last, outcome)
    assert row["response_due_bytes"] is None
