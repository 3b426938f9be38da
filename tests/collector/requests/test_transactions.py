"""The statements of a transaction have one parent, the likeliest that was open all the time."""

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from collector.requests.critical_path import NONE
from collector.requests.spans import link
from collector.requests.transactions import one_parent_each, transactions
from tests.helpers.exchange_lines import exchanges_of

PARENTS = ((0, 1_000), (0, 350), (150, 1_000))
"""From when until when the requests in the first rows were open."""
Linked = tuple[int, float]
FIRST = len(PARENTS)


def statements(*words: str, protocol: str = "postgresql") -> pa.Table:
    """Exchanges: `CONNECTION METHOD` each."""
    split = [word.split() for word in words]
    return pa.table(
        {
            "connection_id": [int(of) for of, _ in split],
            "method": pa.array([method for _, method in split]).dictionary_encode(),
            "protocol": pa.array([protocol] * len(split)).dictionary_encode(),
        }
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("1 BEGIN", "1 UPDATE", "1 INSERT", "1 COMMIT", "1 SELECT"), [[0, 1, 2, 3]]),
        (("1 SELECT", "1 START", "1 UPDATE", "1 ROLLBACK"), [[1, 2, 3]]),
        (("1 BEGIN", "2 BEGIN", "1 UPDATE", "2 UPDATE", "2 COMMIT", "1 COMMIT"), [[0, 2, 5], [1, 3, 4]]),
        (("1 BEGIN", "1 SELECT", "1 COMMIT", "1 BEGIN", "1 SELECT", "1 COMMIT"), [[0, 1, 2], [3, 4, 5]]),
        (("1 UPDATE", "1 COMMIT", "2 SELECT", "2 SELECT"), []),
        (("1 BEGIN", "2 SELECT", "2 SELECT"), []),
        (("1 BEGIN", "1 UPDATE"), [[0, 1]]),
    ],
    ids=[
        "one, and a statement of its own", "of other words", "two at once", "two one after the other",
        "whose beginning was not captured", "of one statement", "whose end was not captured",
    ],
)  # fmt: skip
def test_which_statements_are_of_a_transaction(words: tuple[str, ...], expected: list[list[int]]) -> None:
    found = transactions(statements(*words), np.arange(len(words)) * 100)
    assert sorted(sorted(rows) for (_,), rows in _by_transaction(found)) == expected
    assert transactions(statements(*words, protocol="http/1.1"), np.arange(len(words)) * 100).is_empty()


def test_all_statements_of_a_transaction_are_linked_to_one_request() -> None:
    exchanges = exchanges_of(
        """
        client > web/web 0 10 900 910 protocol=unknown
        client > web/web 40 50 350 360 protocol=unknown
        web > db/db 100 110 120 130 protocol=postgresql method=BEGIN
        web > db/db 200 210 220 230 protocol=postgresql method=UPDATE
        web > db/db 500 510 520 530 protocol=postgresql method=COMMIT
        """
    )
    place = exchanges.schema.get_field_index("connection_id")
    of_one = exchanges.set_column(place, "connection_id", pa.array([1, 2, 3, 3, 3]))
    parents = [link(each)["parent_span_id"].to_pylist()[2:] for each in (exchanges, of_one)]
    assert parents == [[2, 2, 1], [1, 1, 1]]


def _by_transaction(found: pl.DataFrame) -> list[tuple[tuple[object, ...], list[int]]]:
    return [(key, rows["row"].to_list()) for key, rows in found.group_by("transaction")]


@pytest.mark.parametrize(
    ("links", "by_id", "expected"),
    [
        ([(0, 0.8), (NONE, 0.0), (NONE, 0.0), (0, 0.9)], False, (0, 0.85)),
        ([(0, 0.6), (0, 0.6), (1, 0.9), (NONE, 0.0)], False, (0, 0.4)),
        ([(1, 0.9), (NONE, 0.0), (NONE, 0.0), (0, 0.5)], False, (0, 0.25)),
        ([(2, 0.9), (2, 0.9), (2, 0.9), (2, 0.9)], False, None),
        ([(NONE, 0.0)] * 4, False, None),
        ([(0, 0.8), (NONE, 0.0), (NONE, 0.0), (1, 1.0)], True, None),
    ],
    ids=["two agree", "most agree", "one had ended", "begun within it", "none is linked", "one by its id"],
)
def test_the_parent_of_a_transaction(links: list[Linked], by_id: bool, expected: Linked | None) -> None:
    given = [(NONE, 0.0)] * FIRST + links
    of = pl.DataFrame({"row": [3, 4, 5, 6], "transaction": [1] * 4, "sent": [100, 200, 300, 400]})
    opened, closed = (np.array([*each, *[500] * 4]) for each in zip(*PARENTS, strict=True))
    shown = np.zeros(len(given), dtype=np.bool_)
    shown[-1] = by_id
    found = one_parent_each(
        of, np.array([at for at, _ in given]), np.array([sure for _, sure in given]), shown, opened, closed
    )
    rows = [] if expected is None else [(row, expected[0], pytest.approx(expected[1])) for row in (3, 4, 5, 6)]
    assert found.sort("row").select("row", "parent", "confidence").rows() == rows
