"""Several proxies behind a balancer: what one takes others give, one that is killed loses nothing, and the trace."""

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from storage_cluster import topology
from storage_cluster.hosts import cluster
from storage_cluster.servers import balancer
from testkit.loopback_store import Client, LoopbackStore
from tests.helpers.live_cluster import cluster_in, run_on

FILE = topology.find("several-proxies")
TRACER = str(Path(sys.executable).parent / "tracer")
COMMAND = """
import http.server as h, sys
h.HTTPServer((sys.argv[1], int(sys.argv[2])), h.BaseHTTPRequestHandler).serve_forever()
"""
PUT = ("bench", "run", "put", "--size", "2000", "--concurrency", "4", "--retries", "5")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cluster.ClusterStatus]:
    if balancer.find_program() is None:
        pytest.skip("NOT TESTED: haproxy is not installed (apt install haproxy)")
    folder = tmp_path_factory.mktemp("proxies")
    file = folder / "topology.toml"
    text = FILE.read_text("utf-8").replace('services = ["proxy-balancer"]', 'services = ["proxy-balancer", "extra"]')
    text = text.replace("[services]\n", "[services]\nextra = 9000\n")
    command = json.dumps([sys.executable, "-c", COMMAND, "{address}", "{port}"])
    file.write_text(f"{text}\n[commands]\nextra = {command}\n", "utf-8")
    with cluster_in(folder / "cluster", file) as running:
        yield running


@pytest.mark.live
def test_any_proxy_gives_what_another_took(live: cluster.ClusterStatus) -> None:
    assert live.environment["ST_AUTH"] == "http://10.77.0.19:8080/auth/v1.0"
    script = textwrap.dedent("""
        import swiftclient.client as c, os, hashlib
        url, token = c.get_auth(os.environ["ST_AUTH"], os.environ["ST_USER"], os.environ["ST_KEY"])
        print(url)
        at = {n: f"http://10.77.0.2{n}:8080/v1/AUTH_test" for n in (0, 1)}
        c.put_container(at[0], token, "shared")
        for n in (0, 1):
            c.put_object(at[n], token, "shared", f"by-{n}", f"body {n}" * 100)
        for n in (0, 1):
            print(hashlib.md5(c.get_object(at[1 - n], token, "shared", f"by-{n}")[1]).hexdigest())
        print(len(c.get_container(url, token, "shared")[1]))
    """)
    lines = run_on(live, "client", sys.executable, "-c", script).split()
    digests = [hashlib.md5(f"body {n}".encode() * 100).hexdigest() for n in (0, 1)]
    assert lines == ["http://10.77.0.19:8080/v1/AUTH_test", *digests, "2"]


@pytest.mark.live
def test_a_command_of_the_topologys_own_runs_and_is_shown(live: cluster.ClusterStatus) -> None:
    (extra,) = (service for service in live.host("balancer").services if service.name == "extra")
    assert (extra.port, extra.alive) == (9000, True)
    script = "import urllib.request as u, sys; u.urlopen(sys.argv[1])"
    answer = subprocess.run(
        [*live.host("client").enter, sys.executable, "-c", script, "http://10.77.0.19:9000/"],
        env=os.environ | live.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "501" in answer.stderr, "the command answers, that it knows no GET"


@pytest.mark.live
def test_the_trace_names_each_proxy_and_links_all_the_way(live: cluster.ClusterStatus, tmp_path: Path) -> None:
    where = tmp_path / "trace"
    argv = [TRACER, "record", "-o", str(where), TRACER, *PUT, "--count", "12", "--container", "traced"]
    subprocess.run(argv, env=_environment(live), check=True, capture_output=True)
    exchanges = pl.read_parquet(where / "exchanges.parquet").with_columns(pl.col(pl.Categorical).cast(pl.String))
    named = exchanges.filter(pl.col("server_host").is_in(["balancer", "proxy1", "proxy2"]))
    assert set(named["service"]) == {"swift-proxy"}
    parents = pl.read_parquet(where / "spans.parquet", columns=["span_id", "parent_span_id"])
    linked = exchanges.join(parents, left_on="exchange_id", right_on="span_id")
    ways = [_way(linked, row) for row in linked.filter(_uploads("swift-object", "traced"))["exchange_id"]]
    assert len(ways) == 36
    assert {way[:2] + way[3:] for way in ways} == {("client", "balancer", f"storage{n}") for n in (1, 2, 3)}
    assert {way[2] for way in ways} == {"proxy1", "proxy2"}


def _uploads(service: str, container: str) -> pl.Expr:
    of_container = pl.col("target").str.contains(f"/{container}/")
    return (pl.col("service") == service) & (pl.col("method") == "PUT") & of_container


def _way(linked: pl.DataFrame, exchange_id: int) -> tuple[str, ...]:
    """The hosts from the client to the server of an exchange."""
    hosts: list[str] = []
    at: int | None = exchange_id
    while at is not None:
        row = linked.row(by_predicate=pl.col("exchange_id") == at, named=True)
        hosts.insert(0, row["server_host"])
        at, client = row["parent_span_id"], row["client_host"]
    return (client, *hosts)


@pytest.mark.live
def test_a_proxy_that_is_killed_under_load_loses_nothing(live: cluster.ClusterStatus) -> None:
    """Runs last: the proxy stays dead. The balancer answers 502 for a request under way, which is tried again."""
    before = _answered_count(live, "proxy1")
    bench = (*live.host("client").enter, TRACER)
    argv = (*bench, *PUT, "--count", "60", "--container", "killed")
    with subprocess.Popen(argv, env=_environment(live), stdout=subprocess.DEVNULL) as load:
        while _answered_count(live, "proxy1") < before + 3 and load.poll() is None:
            time.sleep(0.01)
        pids = [service.pid for service in live.host("proxy1").services]
        assert len(pids) == 2
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        assert load.poll() is None, "the load was over before"
        assert load.wait(60) == 0
    swift = str(Path(sys.executable).parent / "swift")
    listed = lambda: len(run_on(live, "client", swift, "list", "killed").split())  # noqa: E731
    deadline = time.monotonic() + 30
    while listed() < 60 and time.monotonic() < deadline:  # a container server that was slow hears of some later
        time.sleep(0.5)
    assert listed() == 60
    get = ("bench", "run", "get", "--size", "2000", "--count", "60", "--container", "killed", "--retries", "5")
    subprocess.run([*bench, *get], env=_environment(live), check=True, capture_output=True)


def _environment(live: cluster.ClusterStatus) -> dict[str, str]:
    return os.environ | live.environment | {"TWINTAP_CLUSTER_DIR": live.state_dir}


def _answered_count(live: cluster.ClusterStatus, host: str) -> int:
    """The number of requests that a proxy's processes have answered."""
    files = Path(live.state_dir, "logs", host).glob("proxy*.jsonl")
    return sum(file.read_bytes().count(b"\n") for file in files)


def test_a_changed_container_is_seen_by_another_proxy_when_its_memory_ends(tmp_path: Path) -> None:
    """Two proxies in one process, whose memory lasts no time at all: what one changes the other sees at once."""

    class TwoProxies(LoopbackStore):
        def make_topology(self) -> topology.Topology:
            made = super().make_topology()
            other = topology.Host("proxy2", "127.0.0.1", (self.bind("proxy", "proxy2"),))
            options = topology.ProxyOptions(info_cache_s=0.0)
            return dataclasses.replace(made, hosts=(*made.hosts, other), proxy=options)

    with TwoProxies(tmp_path) as store:
        owner = Client(store)
        other = Client(store, "test:tester3", "testing3")
        token = {"X-Auth-Token": store.token("test:tester3", "testing3")}
        assert owner("PUT c").status == 201
        ask = lambda host: store.ask("GET", "/v1/AUTH_test/c", token, host=host).status  # noqa: E731
        assert (other("GET c").status, ask("proxy2")) == (403, 403)
        assert owner("POST c", {"X-Container-Read": "test:tester3"}).status == 204
        assert (ask("proxy"), ask("proxy2")) == (204, 204)
        assert owner("DELETE c").status == 204
        put = store.ask("PUT", "/v1/AUTH_test/c/o", {"X-Auth-Token": store.token()}, b"x", host="proxy2")
        assert put.status == 404
