"""A small store with a gateway, and clients of it."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore import UNSIGNED

from testkit.loopback_store import CALM, LoopbackStore
from tests.helpers.s3_clients import client_of

MakeClient = Callable[..., Any]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackStore]:
    with LoopbackStore(tmp_path_factory.mktemp("store"), intervals=CALM) as running:
        yield running


@pytest.fixture(scope="module")
def gateway_url(store: LoopbackStore) -> str:
    gateway = store.topology.service("s3")
    return f"http://{gateway.address}:{gateway.port}"


@pytest.fixture(scope="module")
def make_client(store: LoopbackStore) -> MakeClient:
    return functools.partial(client_of, store)


@pytest.fixture(scope="module")
def client(make_client: MakeClient) -> Any:
    return make_client()


@pytest.fixture(scope="module")
def other(make_client: MakeClient) -> Any:
    """Another user, of another account."""
    return make_client("test2:tester2", "testing2")


@pytest.fixture(scope="module")
def anonymous(make_client: MakeClient) -> Any:
    """Somebody who signs nothing."""
    return make_client(signature_version=UNSIGNED)


@pytest.fixture
def bucket(client: Any, request: pytest.FixtureRequest) -> str:
    name = f"b-{abs(hash(request.node.nodeid)) % 10**10}"
    client.create_bucket(Bucket=name)
    return name
