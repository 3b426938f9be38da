"""What OpenStack Swift answered with several storage policies, asked of our store with the same ones."""

from collections.abc import Iterator

import pytest

from testkit.loopback_store import CALM, LoopbackStore
from testkit.swift_scenarios import policies, recording
from testkit.swift_scenarios.known import unexplained_parts
from testkit.swift_scenarios.site import Site

RECORDED = recording.load(policies.FILE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("policies")
    with LoopbackStore(folder, policies=policies.POLICIES, replicas=1, intervals=CALM) as store:
        proxy = store.topology.service("proxy")
        yield Site(proxy.address, proxy.port)


@pytest.mark.parametrize("area", policies.AREAS)
def test_answers_with_policies_are_swifts(site: Site, area: str) -> None:
    found = recording.disagreements(area, RECORDED[area], policies.run(site, area))
    assert [(each.wanted.request, unexplained_parts(each)) for each in found if unexplained_parts(each)] == []
