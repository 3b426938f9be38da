"""What an answer means: its class, and the name of its result code."""

import pyarrow as pa
import pytest

from collector.requests.results import StatusClass, answer_text, with_results
from collector.trace.schema import EXCHANGES, conform


def exchanges(*answers: tuple[str, int | None, int | None]) -> pa.Table:
    """Exchanges with a protocol, a status and a result code."""
    rows = [dict(zip(("protocol", "status", "result_code"), answer, strict=True)) for answer in answers]
    schema = pa.schema([EXCHANGES.field(name) for name in ("protocol", "status", "result_code")])
    return conform("exchanges", pa.Table.from_pylist(rows, schema=schema))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (("http/1.1", 200, None), (StatusClass.OK, None)),
        (("http/1.1", 404, None), (StatusClass.CLIENT_ERROR, None)),
        (("http/1.1", 429, None), (StatusClass.REFUSED, None)),
        (("http/1.1", 503, None), (StatusClass.SERVER_ERROR, None)),
        (("http/1.1", None, None), (StatusClass.UNKNOWN, None)),
        (("http/2", 200, 0), (StatusClass.OK, None)),
        (("http/2", 200, 14), (StatusClass.SERVER_ERROR, "UNAVAILABLE")),
        (("http/2", 200, 5), (StatusClass.CLIENT_ERROR, "NOT_FOUND")),
        (("http/2", 200, -2), (StatusClass.UNKNOWN, None)),
        (("postgresql", None, 3505685), (StatusClass.CLIENT_ERROR, "23505 unique_violation")),
        (("mysql", None, 1062), (StatusClass.CLIENT_ERROR, "1062 ER_DUP_ENTRY")),
        (("unknown", None, None), (StatusClass.UNKNOWN, None)),
    ],
)
def test_an_answer_by_its_protocol(
    answer: tuple[str, int | None, int | None], expected: tuple[StatusClass, str | None]
) -> None:
    [row] = with_results(exchanges(answer)).to_pylist()
    assert (row["status_class"], row["result"]) == expected


def test_each_of_many_answers_has_its_own_meaning() -> None:
    many = exchanges(("http/2", 200, 14), ("http/1.1", 200, None), ("http/2", 200, 8), ("http/2", 200, 14))
    found = with_results(many)
    assert found["result"].to_pylist() == ["UNAVAILABLE", None, "RESOURCE_EXHAUSTED", "UNAVAILABLE"]
    assert found["status_class"].to_pylist() == ["server_error", "ok", "refused", "server_error"]
    assert with_results(many.slice(0, 0)).num_rows == 0


def test_what_an_answer_says() -> None:
    answers = [(200, None), (200, "UNAVAILABLE"), (0, "42P01"), (None, None)]
    assert [answer_text(*answer) for answer in answers] == ["200", "200 UNAVAILABLE", "42P01", ""]
