"""Fixtures: one store for all that is asked of it here."""

from collections.abc import Iterator

import pytest

from testkit.loopback_store import LoopbackStore


@pytest.fixture(scope="package")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackStore]:
    """A store that tests of this folder share; each uses containers of its own."""
    with LoopbackStore(tmp_path_factory.mktemp("store")) as running:
        yield running
