"""Fixtures: one store for all that is asked of it here."""

import dataclasses
from collections.abc import Iterator

import pytest

from testkit.loopback_store import INTERVALS, LoopbackStore

_CALM = dataclasses.replace(INTERVALS, account_report_delay_s=0.5, update_retry_s=0.5)
"""Updaters look into every database there is: in ever more of them 20 times a second would be most of the work."""


@pytest.fixture(scope="package")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackStore]:
    """A store that tests of this folder share; each uses containers of its own.

    It has one replica of everything: what a client sees is the same, for a third of the servers' work.
    """
    with LoopbackStore(tmp_path_factory.mktemp("store"), replicas=1, intervals=_CALM) as running:
        yield running
