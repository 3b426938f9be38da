"""The registry of protocols, and what is printed of it."""

from pathlib import Path

from collector.requests.protocols import MULTIPLEXED, NAMES, UNKNOWN, Exchanges, Protocol, table_lines
from collector.requests.protocols import PROTOCOLS as ALL
from collector.requests.stream_evidence import HTTP, HTTP2

DECODING = Path(__file__).parents[3] / "docs" / "decoding.md"


def test_the_table_of_protocols_is_that_of_the_registry() -> None:
    text = DECODING.read_text()
    assert "\n\n" + "\n".join(table_lines()) + "\n\n" in text, "python -m collector.requests.protocols prints it"


def test_protocols_of_exchanges_are_registered_by_the_same_names() -> None:
    assert {HTTP, HTTP2} <= set(NAMES)
    assert HTTP2 in MULTIPLEXED and HTTP not in MULTIPLEXED
    assert ALL[-1] == Protocol(UNKNOWN, UNKNOWN, Exchanges.TURNS, ALL[-1].reads, "", "")
