"""Fixtures: a whole store on loopback."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.loopback_store import LoopbackStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LoopbackStore]:
    """A store of its own for one test."""
    with LoopbackStore(tmp_path) as running:
        yield running
