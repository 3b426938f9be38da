"""Random sequences of requests, each answered by Ceph's RGW as by the gateway."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config

from testkit.loopback_store import LoopbackStore
from testkit.s3_stores import MissingProgramError, S3Store, start_rgw
from tests.helpers.s3_clients import client_of
from tests.helpers.s3_pair import Requests, Side, is_same

PLAIN = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
"""Without the checksums of today's clients, which RGW 16 does not know."""


@pytest.fixture(scope="module")
def rgw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Store]:
    try:
        with start_rgw(tmp_path_factory.mktemp("rgw")) as running:
            yield running
    except MissingProgramError as error:
        pytest.skip(f"NOT TESTED beside RGW: {error}")


@pytest.fixture(scope="module")
def theirs(rgw: S3Store) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=rgw.url,
        aws_access_key_id=rgw.access_key,
        aws_secret_access_key=rgw.secret_key,
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}, **PLAIN),
    )


@pytest.mark.parametrize("seed", [2])
def test_both_answer_the_same(store: LoopbackStore, theirs: Any, seed: int) -> None:
    name, requests = f"pair-{seed}", Requests(seed)
    sides = [Side(client, name) for client in (client_of(store, **PLAIN), theirs)]
    for side in sides:
        side.client.create_bucket(Bucket=name)
    for step in range(100):
        what, ask = requests.next()
        ours, others = (side.answer(ask) for side in sides)
        assert is_same(what, ours, others), f"step {step}, {what}: {ours} here, {others} there"
