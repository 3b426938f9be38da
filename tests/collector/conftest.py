"""Two hosts for the live tests of a module."""

from collections.abc import Iterator

import pytest

from testkit.live_hosts import Pair, pair
from tests.helpers.system_tools import or_skip


@pytest.fixture(scope="module")
def hosts() -> Iterator[Pair]:
    """Both, up; the tests are skipped where they cannot be made."""
    with or_skip(), pair() as both:
        yield both
