"""Random sequences of requests, compared with a model in memory after each."""

from typing import Any

import pytest

from tests.helpers.s3_model import Sequence


@pytest.mark.parametrize("seed", range(2))
def test_a_bucket_is_what_its_requests_made_it(client: Any, bucket: str, seed: int) -> None:
    Sequence(client, bucket, seed).run(20)
