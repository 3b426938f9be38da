"""A small store with a gateway, and clients of it."""

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config

from testkit.loopback_store import LoopbackStore

MakeClient = Callable[..., Any]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackStore]:
    with LoopbackStore(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture(scope="module")
def make_client(store: LoopbackStore) -> MakeClient:
    def make(user: str = "test:tester", key: str = "testing", **options: Any) -> Any:
        gateway = store.topology.service("s3")
        config = Config(
            s3={"addressing_style": "path"}, retries={"max_attempts": 1}, signature_version="s3v4", **options
        )
        return boto3.client(
            "s3",
            endpoint_url=f"http://{gateway.address}:{gateway.port}",
            aws_access_key_id=user,
            aws_secret_access_key=key,
            region_name="us-east-1",
            config=config,
        )

    return make


@pytest.fixture(scope="module")
def client(make_client: MakeClient) -> Any:
    return make_client()


@pytest.fixture
def bucket(client: Any, request: pytest.FixtureRequest) -> str:
    name = f"b-{abs(hash(request.node.nodeid)) % 10**10}"
    client.create_bucket(Bucket=name)
    return name
