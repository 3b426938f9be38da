"""The routing proxy before two small stores, as the paper has it and without what costs the paper's its time."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from storage_cluster.topology import RoutingOptions
from testkit.two_back_ends import STORES, TwoBackEnds
from tests.helpers.s3_clients import client_of

VARIANTS = {
    "paper": RoutingOptions(**STORES, threshold_bytes=1000, body="whole", connections="new", locations="database"),
    "improved": RoutingOptions(**STORES, threshold_bytes=1000),
}

Keys = dict[str, list[str]]


@pytest.fixture(scope="module", params=VARIANTS)
def front(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBackEnds]:
    with TwoBackEnds(tmp_path_factory.mktemp("routing"), VARIANTS[request.param]) as running:
        yield running


@pytest.fixture(scope="module")
def client(front: TwoBackEnds) -> Any:
    return client_of(front, service="routing")


@pytest.fixture
def bucket(client: Any, request: pytest.FixtureRequest) -> str:
    name = f"b-{abs(hash(request.node.nodeid)) % 10**10}"
    client.create_bucket(Bucket=name)
    return name


@pytest.fixture
def keys_in_stores(front: TwoBackEnds, bucket: str) -> Callable[[], Keys]:
    """The bucket's keys by store, asked past the proxy."""

    def ask() -> Keys:
        found = {}
        for size, host in STORES.items():
            listed = client_of(front, host=host).list_objects_v2(Bucket=bucket)
            found[size] = [entry["Key"] for entry in listed.get("Contents", [])]
        return found

    return ask
