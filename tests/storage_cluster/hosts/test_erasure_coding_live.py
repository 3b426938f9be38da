"""An object in fragments on the live cluster: a host is killed and gets what it missed; what a trace shows of it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from storage_cluster import convergence, topology
from storage_cluster.faults import control
from storage_cluster.hosts import cluster
from tests.helpers.live_cluster import cluster_in, run_on
from tests.helpers.polling import PATIENCE_S

TRACER = str(Path(sys.executable).parent / "tracer")
SIZE = 1_500_000
SCRIPT = """
import hashlib, os, random, sys, swiftclient.client as c
url, token = c.get_auth(os.environ["ST_AUTH"], os.environ["ST_USER"], os.environ["ST_KEY"])
body = random.Random(sys.argv[2]).randbytes(int(sys.argv[3]))
if sys.argv[1] == "put":
    c.put_container(url, token, "coded", {"X-Storage-Policy": "coded"})
    c.put_object(url, token, "coded", "o", body)
print(c.get_object(url, token, "coded", "o")[1] == body)
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cluster.ClusterStatus]:
    with cluster_in(tmp_path_factory.mktemp("coding") / "cluster", topology.find("policies")) as running:
        yield running


def ask(live: cluster.ClusterStatus, what: str, seed: str) -> str:
    """Write the object with the bytes of a seed and read it, or only read it: whether these bytes came."""
    return run_on(live, "client", sys.executable, "-c", SCRIPT, what, seed, str(SIZE)).strip()


@pytest.mark.live
def test_a_killed_host_loses_nothing_and_gets_what_it_missed(live: cluster.ClusterStatus) -> None:
    state_dir = Path(live.state_dir)
    assert ask(live, "put", "first") == "True"
    control.ask(state_dir, {"order": "add", "fault": {"kind": "kill", "target": "storage2", "parameters": {}}})
    assert ask(live, "get", "first") == "True"
    assert ask(live, "put", "second") == "True"
    control.ask(state_dir, {"order": "clear", "ids": None})
    rings = cluster.load_rings(state_dir)
    assert convergence.await_agreement(state_dir / "data", rings, PATIENCE_S) == []
    fragments = {path.parts[-7] for path in state_dir.glob("data/*/*/objects-3/*/*/*/*#d.data")}
    assert fragments == {"storage1", "storage2", "storage3"}
    assert ask(live, "get", "second") == "True"


@pytest.mark.live
def test_the_trace_shows_each_fragment_below_the_clients_request(live: cluster.ClusterStatus, tmp_path: Path) -> None:
    where = tmp_path / "trace"
    argv = [TRACER, "record", "-o", str(where), sys.executable, "-c", SCRIPT, "put", "traced", str(SIZE)]
    environment = os.environ | live.environment | {"TWINTAP_CLUSTER_DIR": live.state_dir}
    subprocess.run(argv, env=environment, check=True, capture_output=True)
    exchanges = pl.read_parquet(where / "exchanges.parquet").with_columns(pl.col(pl.Categorical).cast(pl.String))
    parents = pl.read_parquet(where / "spans.parquet", columns=["span_id", "parent_span_id"])
    linked = exchanges.join(parents, left_on="exchange_id", right_on="span_id").filter(
        pl.col("target").str.ends_with("/AUTH_test/coded/o")
    )
    for method, count in (("PUT", 3), ("GET", 2)):
        of_method = linked.filter(pl.col("method") == method)
        (whole,) = of_method.filter(pl.col("service") == "swift-proxy").rows(named=True)
        sent = of_method.filter(pl.col("service") == "swift-object")
        assert (whole["client_host"], whole["parent_span_id"]) == ("client", None)
        assert sent["parent_span_id"].to_list() == [whole["exchange_id"]] * count
        assert set(sent["client_host"]) == {"proxy"}
        assert sent["server_host"].n_unique() == count
        bytes_of = "request_bytes" if method == "PUT" else "response_bytes"
        assert all(SIZE / 2 < each < SIZE / 2 + 4000 for each in sent[bytes_of])
