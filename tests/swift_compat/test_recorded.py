"""Every recorded exchange with OpenStack Swift, asked of our store: the same answer, or a known reason why not."""

import pytest

from testkit.loopback_store import LoopbackStore
from testkit.swift_scenarios import AREAS, recording, run
from testkit.swift_scenarios.known import KNOWN, unexplained_parts
from testkit.swift_scenarios.recording import Disagreement, disagreements
from testkit.swift_scenarios.site import Exchange, Site

RECORDED = recording.load()


@pytest.fixture(scope="module")
def site(store: LoopbackStore) -> Site:
    proxy = store.topology.service("proxy")
    return Site(proxy.address, proxy.port)


@pytest.mark.parametrize("area", AREAS)
def test_answers_are_swifts(site: Site, area: str) -> None:
    found = disagreements(area, RECORDED[area], run(site, area))
    assert [(each.wanted.request, unexplained_parts(each)) for each in found if unexplained_parts(each)] == []


def test_a_difference_is_reported() -> None:
    wanted = Exchange("GET /x", "200 OK", {"etag": "a", "vary": "v"}, "body")
    got = Exchange("GET /x", "404 Not Found", {"etag": "b"}, "")
    (found,) = disagreements("objects", [wanted], [got])
    assert found.parts == ["status: 200 OK → 404 Not Found", "etag: a → b", "vary: v → (none)", "body: 'body' → ''"]
    assert unexplained_parts(found) == found.parts
    assert disagreements("objects", [wanted], [wanted]) == []


def test_a_reason_covers_its_own_area_only() -> None:
    exchange = Exchange("PUT /v1/AUTH_test/c/rest as test:tester", "201 Created", {}, "")
    other = Exchange(exchange.request, "413 Request Entity Too Large", {}, "")
    assert unexplained_parts(Disagreement("quotas", exchange, other)) == []
    assert unexplained_parts(Disagreement("objects", exchange, other)) != []
    assert len({known.reason for known in KNOWN}) == len(KNOWN)
