"""Two hosts for the live tests of a module."""

from collections.abc import Iterator

import pytest

from tests.helpers.live_hosts import Pair, or_skip, pair


@pytest.fixture(scope="module")
def hosts() -> Iterator[Pair]:
    """Both, up; the tests are skipped where they cannot be made."""
    with or_skip(), pair() as both:
        yield both
