"""Several gateways behind a balancer: its configuration, the cluster with it, and what is said where it cannot be."""

import dataclasses
import sys
from pathlib import Path

import pytest

from storage_cluster import services, topology
from storage_cluster.errors import MissingResourceError
from storage_cluster.hosts import cluster
from storage_cluster.servers import balancer
from tests.helpers.live_cluster import cluster_in, run_on

FILE = topology.find("balanced")
TRACER = str(Path(sys.executable).parent / "tracer")


def test_the_configuration_names_every_gateway() -> None:
    balanced = topology.load(FILE)
    text = balancer.configuration(balanced.service("balancer"), balanced, 7, 9)
    assert "  server gateway1 10.77.0.25:8085\n  server gateway2 10.77.0.26:8085\n" in text
    assert "bind fd@7\n" in text and "log fd@9 " in text


def test_a_cluster_without_the_program_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = dataclasses.replace(services.KINDS["balancer"], program="no-such-haproxy")
    monkeypatch.setitem(services.KINDS, "balancer", other)
    with pytest.raises(MissingResourceError, match="no-such-haproxy is not installed") as raised:
        cluster.up(tmp_path / "cluster", FILE)
    assert "apt install no-such-haproxy" in raised.value.next_step
    assert not (tmp_path / "cluster").exists()


def test_the_balancers_caches_are_those_of_all_gateways(tmp_path: Path) -> None:
    for host, hits in (("gateway1", 3), ("gateway2", 4)):
        file = tmp_path / "logs" / host / "s3.cache.json"
        file.parent.mkdir(parents=True)
        counters = cluster.CacheStatus(room_bytes=10, hits=hits)
        file.write_text(str(dataclasses.asdict(counters)).replace("'", '"'))
    (found,) = cluster._gateways(topology.load(FILE), tmp_path)
    assert (found.url, found.cache.hits, found.cache.room_bytes) == ("http://10.77.0.24:8085", 7, 20)


@pytest.mark.live
def test_requests_are_spread_and_a_dead_gateway_is_passed_over(tmp_path: Path) -> None:
    if balancer.find_program() is None:
        pytest.skip("haproxy is not installed (apt install haproxy)")
    with cluster_in(tmp_path / "cluster", FILE) as live:
        assert live.environment["AWS_ENDPOINT_URL_S3"] == live.s3[0].url == "http://10.77.0.24:8085"
        put = (TRACER, "bench", "run", "put", "--count", "8", "--concurrency", "4", "--s3", live.s3[0].url)
        run_on(live, "client", *put)
        state_dir = Path(live.state_dir)
        served = {host: log_lines(state_dir, host) for host in ("gateway1", "gateway2")}
        assert min(served.values()) > 0, served
        assert (state_dir / "logs/balancer/balancer.log").read_text().count("servers/gateway") == 9
        gateway = live.host("gateway1").services[0]
        run_on(live, "gateway1", "kill", "-KILL", str(gateway.pid))
        run_on(live, "client", *put, "--container", "other", "--retries", "0")
        assert log_lines(state_dir, "gateway2") >= served["gateway2"] + 9


def log_lines(state_dir: Path, host: str) -> int:
    """The number of requests that a gateway has answered."""
    return len((state_dir / "logs" / host / "s3.jsonl").read_text("utf-8").splitlines())
