"""boto3's clients of a gateway on loopback."""

from typing import Any

import boto3
from botocore.config import Config

from testkit.loopback_store import LoopbackStore


def client_of(
    store: LoopbackStore,
    user: str = "test:tester",
    key: str = "testing",
    service: str = "s3",
    host: str | None = None,
    **options: Any,
) -> Any:
    """A client of the store's gateway, or another service; `options` are botocore's."""
    gateway = store.topology.service(service, host)
    given = {"s3": {"addressing_style": "path"}, "retries": {"max_attempts": 1}, "signature_version": "s3v4"}
    return boto3.client(
        "s3",
        endpoint_url=f"http://{gateway.address}:{gateway.port}",
        aws_access_key_id=user,
        aws_secret_access_key=key,
        region_name="us-east-1",
        config=Config(**{**given, **options}),
    )
