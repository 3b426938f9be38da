"""The registry of protocols, and what is printed of it."""

from pathlib import Path

from collector.requests.exchanges import HTTP, HTTP2, UNKNOWN
from collector.requests.protocols import PROTOCOLS, table_lines

DECODING = Path(__file__).parents[3] / "docs" / "decoding.md"


def test_the_table_of_protocols_is_that_of_the_registry() -> None:
    text = DECODING.read_text()
    assert "\n\n" + "\n".join(table_lines()) + "\n\n" in text, "python -m collector.requests.protocols prints it"


def test_protocols_of_exchanges_are_registered_by_the_same_names() -> None:
    names = [protocol.name for protocol in PROTOCOLS]
    assert {HTTP, HTTP2} <= set(names)
    assert names[-1] == UNKNOWN
