"""Fixtures: a whole store on loopback."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.loopback_store import CALM, LoopbackStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LoopbackStore]:
    """A store of its own for one test."""
    with LoopbackStore(tmp_path) as running:
        yield running


@pytest.fixture(scope="package")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackStore]:
    """One store for tests that only ask it things and harm nothing: each module works in containers of its own."""
    with LoopbackStore(tmp_path_factory.mktemp("store"), intervals=CALM) as running:
        yield running
