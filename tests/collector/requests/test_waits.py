"""Queues, quorums and stalls: found from what servers do, and taken out of the ledger without breaking its sum."""

import polars as pl
import pytest

from collector.requests.spans import LEDGER_COLUMNS, link
from collector.requests.stalls import with_stalls
from testkit.tables import BASE_NS, table
from tests.helpers.exchange_lines import exchanges_of


def ledger(text: str) -> dict[int, dict[str, float]]:
    """What each span holds, in µs; stretches of no length left out."""
    rows = link(exchanges_of(text)).to_pylist()
    assert all(row["critical_ns"] == sum(row[column] for column in LEDGER_COLUMNS) for row in rows)
    return {
        row["span_id"]: {name.removesuffix("_ns"): row[name] / 1000 for name in LEDGER_COLUMNS if row[name]}
        for row in rows
    }


def call(at: int, waited: int) -> str:
    """A request that waits, is worked on for 20 µs, and asks."""
    asked = at + 10 + waited + 20
    return f"""
        client > proxy   {at} {at + 10} {asked + 70} {asked + 80} tx={at}
        proxy > storage  {asked} {asked + 5} {asked + 45} {asked + 50} tx={at}
    """


def test_a_queue_is_what_a_request_waits_beyond_the_unhurried() -> None:
    calls = [call(1000 * number, 0) for number in range(1, 30)]
    found = ledger("".join([*calls, call(50_000, 300)]))
    assert "queue" not in found[1]
    assert found[59]["queue"] == 300
    assert found[59]["work"] == found[1]["work"] == 40


def test_a_queue_is_not_distinguished_from_a_few() -> None:
    found = ledger(call(1000, 0) + call(3000, 300))
    assert all("queue" not in span for span in found.values())


QUORUM = """
    client > proxy/p      0 10 190 200 tx=a
    proxy > storage1/o   20 22  58  60 tx=a
    proxy > storage2/o   20 22  98 100 tx=a
    proxy > storage3/o   20 22 150 152 tx=a
"""


def test_beyond_the_first_answer_a_parent_waits_for_the_others() -> None:
    found = ledger(QUORUM)
    assert found[2] == found[3] == {}
    assert found[4] == {"request_network": 2, "work": 38, "fan_out_wait": 92}


def test_one_after_the_other_is_no_quorum() -> None:
    found = ledger(
        """
        client > proxy/p      0 10 190 200 tx=a
        proxy > storage1/o   20 22  58  60 tx=a
        proxy > storage2/o   60 62  98 100 tx=a
        """
    )
    assert all("fan_out_wait" not in span for span in found.values())


def test_clients_at_once_are_no_quorum() -> None:
    found = ledger("client > proxy 0 10 90 100\nclient > proxy 5 15 190 200")
    assert all("fan_out_wait" not in span for span in found.values())


def hop(kind: str, state: str, sent_us: int, attempt: int, start: int = 0, end: int = 100, asked: bool = True) -> dict:
    hosts = ("client", "proxy") if asked else ("proxy", "client")
    return {
        "connection_id": 1,
        "kind": kind,
        "from_client": asked,
        "send_host": hosts[0],
        "receive_host": hosts[1],
        "send_trace_ns": BASE_NS + 1000 * sent_us,
        "stream_start": start,
        "stream_end": end,
        "attempt": attempt,
        "state": state,
        "exchange_id": 1,
    }


@pytest.mark.parametrize(
    ("hops", "expected"),
    [
        ([hop("data", "matched", 0, 1)], (None, None, None)),
        ([hop("data", "lost", 0, 1), hop("data", "matched", 50, 2)], (0, 50_000, 0)),
        ([hop("data", "lost", 0, 1, asked=False), hop("data", "matched", 50, 2, asked=False)], (0, 0, 50_000)),
        ([hop("syn", "lost", 0, 1, end=0), hop("syn", "matched", 1000, 2, end=0)], (1_000_000, 0, 0)),
        (
            [hop("syn_ack", "lost", 1, 1, end=0, asked=False), hop("syn_ack", "matched", 1001, 2, end=0, asked=False)],
            (1_000_000, 0, 0),
        ),
        ([hop("data", "lost", 0, 1), hop("data", "lost", 40, 2), hop("data", "matched", 90, 3)], (0, 90_000, 0)),
    ],
)
def test_stalls_of_an_exchange(hops: list[dict], expected: tuple[int | None, ...]) -> None:
    found = with_stalls(exchanges_of("client > proxy 0 300 390 400"), table("hops", hops)).to_pylist()
    assert tuple(found[0][f"{part}_stall_ns"] for part in ("connect", "request", "response")) == expected


def test_a_stall_is_taken_out_of_the_network() -> None:
    exchanges = with_stalls(
        exchanges_of("client > proxy 0 300 390 400"),
        table("hops", [hop("data", "lost", 0, 1), hop("data", "matched", 250, 2)]),
    )
    (row,) = pl.DataFrame(link(exchanges)).select(LEDGER_COLUMNS).to_dicts()
    assert (row["request_network_ns"], row["stall_ns"], row["work_ns"]) == (50_000, 250_000, 90_000)
