"""A cluster of namespaces for tests, and commands on its hosts."""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_cluster import topology
from storage_cluster.errors import NotPermittedError
from storage_cluster.hosts import cluster

NOT_IN_SMALL = re.compile(r'\[\[host\]\]\nname = "(gateway|storage[23])"\n(.+\n)*\n')


def small_topology(folder: Path) -> Path:
    """A file of the bundled cluster with a client, a proxy and one storage host, for tests of how clusters come and go:
    each of its servers takes a third of a second to start."""
    text = NOT_IN_SMALL.sub("", topology.BUNDLED_FILE.read_text("utf-8")).replace("replicas = 3", "replicas = 1")
    file = folder / "small.toml"
    file.write_text(text, "utf-8")
    assert [host.name for host in topology.load(file).hosts] == ["client", "proxy", "storage1"]
    return file


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
