"""Fixtures: one store for all that is asked of it here."""

from collections.abc import Iterator

import pytest

from testkit.loopback_store import CALM, LoopbackStore


@pytest.fixture(scope="package")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackStore]:
    """A store that tests of this folder share; each uses containers of its own.

    It has one replica of everything: what a client sees is the same, for a third of the servers' work.
    """
    with LoopbackStore(tmp_path_factory.mktemp("store"), replicas=1, intervals=CALM) as running:
        yield running
