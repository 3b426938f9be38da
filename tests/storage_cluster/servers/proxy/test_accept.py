"""The form a client likes best."""

import pytest

from storage_cluster.servers.http.messages import Refusal
from storage_cluster.servers.proxy.accept import best_match

OFFERED = ("text/plain", "application/json", "text/xml")


@pytest.mark.parametrize(
    ("accept", "best"),
    [
        ("", "text/plain"),
        ("*/*", "text/plain"),
        ("application/*", "application/json"),
        ("text/xml, application/json", "text/xml"),
        ("*/*, application/json", "application/json"),
        ("text/xml;q=0.5, application/json;q=0.7", "application/json"),
        ("TEXT/XML;charset=utf-8;q=0.1", "text/xml"),
        ("image/png", None),
    ],
)
def test_what_is_liked_best(accept: str, best: str | None) -> None:
    assert best_match(accept, OFFERED) == best


@pytest.mark.parametrize("accept", ["nonsense", "*;;", "a/b/c", "text/plain,"])
def test_what_is_no_accept_is_refused(accept: str) -> None:
    with pytest.raises(Refusal) as refused:
        best_match(accept, OFFERED)
    assert refused.value.status == 400
