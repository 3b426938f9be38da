"""How requests are named."""

import pytest

from collector.requests.request_words import WORDED, request_words

EMPTY: dict[str, object] = dict.fromkeys(WORDED)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"protocol": "http/1.1", "method": "PUT", "target": "/v1/a"}, "PUT /v1/a"),
        ({"protocol": "http/2", "method": "POST", "target": "/shop.Cart/Get", "result_code": 0}, "shop.Cart/Get"),
        ({"protocol": "http/2", "method": "POST", "target": "/shop.Cart/Get", "result_code": -2}, "shop.Cart/Get"),
        ({"protocol": "http/2", "method": "POST", "target": "/login"}, "POST /login"),
        ({"protocol": "http/2", "method": "POST", "target": "/login", "result_code": 1008}, "POST /login"),
        ({"protocol": "postgresql", "method": "SELECT", "target": "… FROM a", "result_code": 0}, "SELECT … FROM a"),
        ({"protocol": "http/1.1", "method": "PUT", "target": "/b/k", "operation": "PutObject", "bucket": "b",
          "object_key": "k"}, "PutObject b/k"),
        ({"protocol": "unknown"}, ""),
    ],
)  # fmt: skip
def test_a_request_is_named_by_what_it_asks(row: dict[str, object], expected: str) -> None:
    assert request_words(EMPTY | row) == expected
