"""What connections change to, how they say that they close, and which messages begin in a transfer."""

import numpy as np
import pyarrow as pa
import pytest

from collector.capture_files.records import HeadKind
from collector.hops.connection_changes import connection_changes, message_kinds
from collector.trace.schema import MESSAGES, MessageKinds

HTTP_REQUEST, HTTP_RESPONSE, TLS = HeadKind.REQUEST, HeadKind.RESPONSE, HeadKind.TLS_RECORD
SOCKET, HTTP2 = HeadKind.WEBSOCKET_FRAME, HeadKind.HTTP2_FRAME
CLIENT, SERVER = True, False
NO_ERROR, CALM = 1_100, 1_111


def table(*rows: tuple[int, bool, int, HeadKind, dict[str, object]]) -> pa.Table:
    """Messages as connection, side, place, kind, and other columns."""
    common = {"host": "a", "status": 0, "result_code": -1, "frame_kind": 0, "stream_id": -1, "content_length": -1}
    each = [
        {
            **common,
            "connection_id": connection,
            "from_client": side,
            "stream_offset": place,
            "head_kind": int(kind),
            "frame": 1 + number,
            **more,
        }
        for number, (connection, side, place, kind, more) in enumerate(rows)
    ]
    names = [*common, "connection_id", "from_client", "stream_offset", "head_kind", "frame"]
    return pa.table({
        name: pa.array([row[name] for row in each], MESSAGES.field(name).type if name != "host" else pa.string())
        for name in names
    }).set_column(0, "host", pa.array([row["host"] for row in each], pa.string()).dictionary_encode())  # fmt: skip


def changed_to(protocol: str | None, *rows: tuple[bool, int, HeadKind]) -> str | None:
    messages = table(*((7, *row, {}) for row in rows))
    return connection_changes(messages, pa.array([protocol], pa.string()), 7).changed_to.to_pylist()[0]


ASKED, SWITCHED = (CLIENT, 0, HTTP_REQUEST), (SERVER, 0, HTTP_RESPONSE)


@pytest.mark.parametrize(
    ("protocol", "rows", "expected"),
    [
        ("http/1.1", [ASKED, SWITCHED, (SERVER, 90, SOCKET), (CLIENT, 120, SOCKET)], "websocket"),
        ("http/1.1", [ASKED, SWITCHED, (SERVER, 90, SOCKET)], None),
        ("http/1.1", [ASKED, SWITCHED, (SERVER, 90, HTTP2), (CLIENT, 120, HTTP2)], "http/2"),
        ("http/2", [(CLIENT, 24, HTTP2), (SERVER, 9, HTTP2)], None),
        ("postgresql", [(CLIENT, 8, TLS), (SERVER, 1, TLS)], "tls"),
        ("unknown", [(CLIENT, 16, TLS), (SERVER, 30, TLS), (CLIENT, 40, TLS)], "tls"),
        ("unknown", [(CLIENT, 0, TLS), (SERVER, 0, TLS)], None),
        ("http/1.1", [ASKED, (CLIENT, 90, TLS), (CLIENT, 200, HTTP_REQUEST), (SERVER, 50, TLS)], None),
        ("http/1.1", [ASKED, SWITCHED], None),
        (None, [], None),
    ],
)
def test_a_connection_changes_where_both_directions_do(
    protocol: str | None, rows: list[tuple[bool, int, HeadKind]], expected: str | None
) -> None:
    assert changed_to(protocol, *rows) == expected


def test_a_connection_changes_beside_one_that_began_so() -> None:
    began, changes = (
        [(CLIENT, 24, HTTP2), (SERVER, 9, HTTP2)],
        [ASKED, SWITCHED, (SERVER, 90, HTTP2), (CLIENT, 120, HTTP2)],
    )
    messages = table(*((7, *row, {}) for row in began), *((8, *row, {}) for row in changes))
    protocols = pa.array(["http/2", "http/1.1"])
    assert connection_changes(messages, protocols, 7).changed_to.to_pylist() == [None, "http/2"]


def closing(*rows: tuple[bool, HeadKind, dict[str, object]]) -> str | None:
    messages = table(*((7, side, 10 * place, kind, more) for place, (side, kind, more) in enumerate(rows)))
    return connection_changes(messages, pa.array(["http/2"]), 7).closing.to_pylist()[0]


def test_who_says_first_how_it_closes_is_named() -> None:
    def close(code: int) -> dict[str, object]:
        return {"frame_kind": 8, "status": code}

    def goaway(code: int) -> dict[str, object]:
        return {"frame_kind": 7, "result_code": code}

    assert closing((SERVER, SOCKET, close(1001)), (CLIENT, SOCKET, close(1000))) == "server: close 1001"
    assert closing((CLIENT, SOCKET, close(0))) == "client: close"
    assert closing((SERVER, HTTP2, goaway(NO_ERROR)), (CLIENT, HTTP2, goaway(NO_ERROR))) == "server: GOAWAY NO_ERROR"
    calm = "server: GOAWAY ENHANCE_YOUR_CALM"
    assert closing((CLIENT, HTTP2, goaway(NO_ERROR)), (SERVER, HTTP2, goaway(CALM))) == calm
    assert closing((SERVER, SOCKET, {"frame_kind": 1})) is None
    assert closing((CLIENT, HTTP2, {"frame_kind": 1})) is None


def test_a_transfer_has_the_kinds_of_messages_that_begin_in_its_packets() -> None:
    messages = table(
        (7, CLIENT, 0, SOCKET, {"frame_kind": 1, "frame": 5}),
        (7, CLIENT, 9, SOCKET, {"frame_kind": 9, "frame": 5}),
        (7, CLIENT, 0, SOCKET, {"frame_kind": 1, "frame": 3, "host": "b"}),
        (7, SERVER, 0, SOCKET, {"frame_kind": 8, "frame": 9, "host": "b"}),
        (7, SERVER, 0, HTTP2, {"frame_kind": 1, "frame": 11}),
    )
    hops = {
        "send_host": np.array([0, 1, 0, 0], np.int32), "send_frame": np.array([5, 8, 6, 11], np.uint32),
        "receive_host": np.array([1, 1, 1, -1], np.int32), "receive_frame": np.array([3, 9, 8, 0], np.uint32),
    }  # fmt: skip
    found = message_kinds(messages, hops, pa.array(["a", "b"]))
    assert found.tolist() == [MessageKinds.TEXT | MessageKinds.PING, MessageKinds.CLOSE, 0, 0]
    assert message_kinds(table(), hops, pa.array(["a", "b"])).tolist() == [0, 0, 0, 0]
