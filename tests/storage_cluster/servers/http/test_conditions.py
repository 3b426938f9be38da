"""Conditions of GET and HEAD. The rows are what Swift 2.30 answers."""

import pytest
from multidict import CIMultiDict

from storage_cluster.servers.http.conditions import check_conditions

ETAG = "781e5e245d69b566979b86e28d23f2c7"
FOUND = {"Etag": ETAG, "Last-Modified": "Fri, 20 Nov 2026 12:00:00 GMT", "Content-Type": "a/b", "X-Object-Meta-A": "1"}
LATER, EARLIER = "Fri, 20 Nov 2037 12:00:00 GMT", "Fri, 20 Nov 2006 12:00:00 GMT"


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({}, None),
        ({"If-Match": ETAG}, None),
        ({"If-Match": f'"x", "{ETAG}"'}, None),
        ({"If-Match": "*"}, None),
        ({"If-Match": "x"}, 412),
        ({"If-None-Match": ETAG}, 304),
        ({"If-None-Match": f'"x", "{ETAG}"'}, 304),
        ({"If-None-Match": "*"}, 304),
        ({"If-None-Match": "x"}, None),
        ({"If-Modified-Since": LATER}, 304),
        ({"If-Modified-Since": FOUND["Last-Modified"]}, 304),
        ({"If-Modified-Since": EARLIER}, None),
        ({"If-Unmodified-Since": LATER}, None),
        ({"If-Unmodified-Since": EARLIER}, 412),
        ({"If-Modified-Since": "junk"}, None),
        ({"If-Unmodified-Since": "junk"}, None),
        ({"If-None-Match": "x", "If-Modified-Since": LATER}, 304),
        ({"If-Match": "x", "If-None-Match": ETAG}, 304),
        ({"If-Match": "x", "If-Modified-Since": EARLIER}, 412),
        ({"If-Match": "x", "If-Modified-Since": LATER}, 412),
    ],
)
def test_status(asked: dict[str, str], status: int | None) -> None:
    reply = check_conditions(asked, CIMultiDict(FOUND))
    assert (reply.status if reply is not None else None) == status


def test_headers_of_304_and_412() -> None:
    kept = check_conditions({"If-None-Match": "*"}, CIMultiDict(FOUND))
    dropped = check_conditions({"If-Match": "x"}, CIMultiDict(FOUND))
    assert kept is not None and kept.headers["Content-Type"] == "a/b"
    assert dropped is not None and "Content-Type" not in dropped.headers and dropped.headers["X-Object-Meta-A"] == "1"


def test_another_header_may_stand_for_the_etag() -> None:
    asked = {"If-Match": "slo", "X-Backend-Etag-Is-At": "X-Object-Sysmeta-None, X-Object-Sysmeta-Slo-Etag"}
    assert check_conditions(asked, CIMultiDict(FOUND | {"X-Object-Sysmeta-Slo-Etag": '"slo"'})) is None
    reply = check_conditions(asked, CIMultiDict(FOUND))
    assert reply is not None and reply.status == 412
