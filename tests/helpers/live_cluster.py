"""A cluster of namespaces for tests, and commands on its hosts."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_cluster.errors import NotPermittedError
from storage_cluster.hosts import cluster


@contextlib.contextmanager
def cluster_in(state_dir: Path, topology_file: Path | None = None) -> Iterator[cluster.ClusterStatus]:
    """A cluster that is up within the context; the test is skipped where none can be made."""
    try:
        assert cluster.up(state_dir, topology_file)
    except NotPermittedError as error:
        pytest.skip(f"NOT TESTED, no cluster can be made here: {error}")
    try:
        yield cluster.status(state_dir)
    finally:
        cluster.down(state_dir)


def run_on(running: cluster.ClusterStatus, host: str, *command: str, directory: Path | None = None) -> str:
    """What a command prints on a host; it must succeed."""
    done = subprocess.run(
        [*running.host(host).enter, *command],
        env=os.environ | running.environment,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
