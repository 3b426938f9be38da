"""The topology file: the bundled one is what the documents say; a wrong one is refused with the entry at fault."""

import copy
import tomllib
from collections.abc import Callable

import pytest

from storage_cluster import topology


@pytest.fixture
def document() -> dict:
    return tomllib.loads(topology.BUNDLED_FILE.read_text("utf-8"))


def test_the_bundled_cluster() -> None:
    bundled = topology.load(topology.BUNDLED_FILE)
    assert {host.name: host.address for host in bundled.hosts} == {
        "client": "10.77.0.10",
        "proxy": "10.77.0.20",
        "gateway": "10.77.0.25",
        "storage1": "10.77.0.31",
        "storage2": "10.77.0.32",
        "storage3": "10.77.0.33",
    }
    ports = {service.name: service.port for service in bundled.services}
    storage = {"auth": 5000, "object": 6200, "container": 6201, "account": 6202, "daemons": 0}
    assert ports == {"proxy": 8080, "s3": 8085, **storage}
    assert [gateway.address for gateway in bundled.gateways] == ["10.77.0.25"]
    assert bundled.client_host.name == "client"
    assert bundled.auth_url == "http://10.77.0.31:5000/auth/v1.0"
    assert len({device.zone for device in bundled.devices}) == bundled.ring.replicas == 3


def test_the_papers_three_machines() -> None:
    paper = topology.load(topology.find("paper"))
    assert [host.name for host in paper.hosts] == ["client", "proxy", "storage"]
    assert [service.name for service in paper.host("storage").services] == [
        "auth",
        "account",
        "container",
        "object",
        "daemons",
    ]
    assert (len(paper.devices), paper.ring.replicas) == (1, 1)


def test_the_papers_machines_as_they_were() -> None:
    then = topology.load(topology.find("paper-2016"))
    assert then.link.somaxconn == 128
    assert {host.name: host.processor.cores for host in then.hosts} == {"client": 2, "proxy": 2, "storage": 4}
    assert then.host("proxy").processor.request_ms == {"proxy": 8.0}
    assert then.host("proxy").processor.ms_per_mb == {"proxy": 3.8}
    assert then.link.burst_bytes > 65_536  # or the token bucket would split super-segments, for 6 ms a MB
    assert then.link.card_queue_ms and not topology.load(topology.find("paper")).link.card_queue_ms
    assert topology.load(topology.find("paper")).host("proxy").processor.cores == 0


@pytest.mark.parametrize(
    "processor",
    [
        {"cores": -1},
        {"request_ms": {"proxy": 1.0}},
        {"cores": 1, "request_ms": {"a": "b"}},
        {"cores": 1, "request_ms": {"proxy": 1.0}, "ms_per_mb": {"proxy": -1.0}},
        {"cores": 1, "ms_per_mb": {"proxy": 1.0}},
    ],
)
def test_a_processor_that_is_none_is_refused(document: dict, processor: dict) -> None:
    document["host"][1]["processor"] = processor
    with pytest.raises(topology.TopologyError, match="processor"):
        topology.parse(document)


def test_clients_go_to_the_balancer_where_there_is_one() -> None:
    balanced = topology.load(topology.find("balanced"))
    assert [each.host for each in balanced.gateways] == ["gateway1", "gateway2"]
    assert [(each.host, each.port) for each in balanced.s3_endpoints] == [("balancer", 8085)]
    bundled = topology.load(topology.BUNDLED_FILE)
    assert bundled.s3_endpoints == bundled.gateways


def test_a_ring_has_as_many_devices_as_its_policy_has_replicas_or_fragments(document: dict) -> None:
    found = topology.load(topology.find("policies"))
    assert [found.shape_of(policy).replicas for policy in found.policies] == [3, 2, 1, 3]
    assert [policy.name for policy in found.policies if policy.fragment_count] == ["coded"]
    coded = {"name": "coded", "kind": "erasure_coding", "data_fragments": 5, "parity_fragments": 2}
    with pytest.raises(topology.TopologyError, match="7 fragments need as many devices"):
        topology.parse(document | {"policy": [coded]})


def test_so_many_replicas_answer_a_write_before_its_client_is_answered(document: dict) -> None:
    assert topology.parse(document).ring.write_quorum == 0, "a majority"
    ring = document["ring"] | {"write_quorum": 1}
    assert topology.parse(document | {"ring": ring}).ring.write_quorum == 1
    with pytest.raises(topology.TopologyError, match="a write_quorum of 4 is none of 3 replicas"):
        topology.parse(document | {"ring": ring | {"write_quorum": 4}})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"connections": "few"}, "connections is 'few'"),
        ({"answers": 2}, "answers is 2"),
        ({"nodelay": 0}, "nodelay is 0"),
    ],
)
def test_how_servers_answer_is_checked(document: dict, options: dict, message: str) -> None:
    with pytest.raises(topology.TopologyError, match=message):
        topology.parse(document | {"backend": options})


def test_a_topology_is_found_by_name_or_path() -> None:
    assert topology.bundled_names() == [
        *("balanced", "paper", "paper-004", "paper-2016", "papio", "policies", "several-proxies"),
        *("six-hosts", "two-back-ends"),
    ]
    assert topology.find("six-hosts") == topology.BUNDLED_FILE
    assert str(topology.find("mine.toml")) == "mine.toml"


def _same_address(d: dict) -> None:
    d["host"][1]["address"] = d["host"][0]["address"]


def _two_auths(d: dict) -> None:
    d["host"][4]["services"].append("auth")


def _no_client(d: dict) -> None:
    del d["host"][0]


def _few_devices(d: dict) -> None:
    d["ring"]["replicas"] = 7


def _unknown_service(d: dict) -> None:
    d["host"][1]["services"].append("cinder")


def _unknown_key(d: dict) -> None:
    d["ring"]["colour"] = "red"


def _no_object_server(d: dict) -> None:
    d["host"][5]["services"].remove("object")


def _two_balancers(d: dict) -> None:
    d["services"]["balancer"] = 8085
    for host in d["host"][1:3]:
        host["services"].append("balancer")


def _balancer_before_nothing(d: dict) -> None:
    d["services"]["balancer"] = 8085
    d["host"][2]["services"] = ["balancer"]


def _cache_without_medium(d: dict) -> None:
    d["host"][3]["devices"][0]["cache_mib"] = 8


def _negative_bandwidth(d: dict) -> None:
    d["host"][3]["devices"][0] |= {"media": "hdd", "read_bytes_per_s": -1}


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (_two_balancers, "one host may run 'balancer'"),
        (_balancer_before_nothing, "before at least one host with 's3'"),
        (_cache_without_medium, "device d1: cache_mib needs a medium"),
        (_negative_bandwidth, "read_bytes_per_s is -1"),
        (_same_address, "same address"),
        (_two_auths, "'auth'"),
        (_no_client, "without services"),
        (_few_devices, "7 replicas"),
        (_unknown_service, "cinder"),
        (_unknown_key, "colour"),
        (_no_object_server, "storage3"),
    ],
)
def test_what_is_no_cluster_is_refused(document: dict, damage, named: str) -> None:
    damaged = copy.deepcopy(document)
    damage(damaged)
    with pytest.raises(topology.TopologyError, match=named):
        topology.parse(damaged)


def _two_back_ends() -> dict:
    return tomllib.loads(topology.find("two-back-ends").read_text("utf-8"))


def test_two_stores_behind_a_proxy() -> None:
    found = topology.load(topology.find("two-back-ends"))
    assert found.stores == ("ext3", "ext4")
    assert [disk.filesystem for host in found.hosts for disk in host.disks] == ["", "ext3", "ext4"]
    assert [endpoint.host for endpoint in found.s3_endpoints] == ["proxy", "ext3", "ext4"]
    assert [device.host for device in found.devices] == ["ext3", "ext4"], "the proxy's device holds no objects"
    assert topology.endpoint_of(found, "large") == ("10.77.0.32", 8085)
    assert [host.name for host in found.of_store("ext4").hosts] == ["ext4"]
    assert not found.has_swift


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["routing"].update(small="ext5"), "small is 'ext5', neither a host"),
        (lambda d: d["routing"].update(large="https://10.0.0.1"), "neither a host that runs 's3' nor http://"),
        (lambda d: d["routing"].update(large="http://10.0.0.1:x"), "large is 'http://10.0.0.1:x'"),
        (lambda d: d["routing"].update(body="half"), 'body is \'half\', not "streamed" or "whole"'),
        (lambda d: d["routing"].update(threshold_bytes=-1), "threshold_bytes is -1"),
        (lambda d: d["routing"].update(access_key="a"), "go together"),
        (lambda d: d["routing"].update(speed=1), "[routing] has no option 'speed'"),
        (lambda d: d["host"][0].update(services=["routing"]), "commands run there"),
        (lambda d: d["host"][2]["services"].append("routing"), "one host may run 'routing'"),
        (lambda d: d["host"][2]["services"].remove("s3"), "of the store ext3 must run 's3'"),
        (lambda d: d["host"][2]["services"].remove("s3") or d["host"][2].update(store=""), "must run 'auth'"),
        (lambda d: d["ring"].update(replicas=2), "2 replicas of the store ext3"),
    ],
)
def test_what_is_wrong_with_two_stores_is_named(change: Callable[[dict], None], words: str) -> None:
    document = _two_back_ends()
    change(document)
    with pytest.raises(topology.TopologyError) as caught:
        topology.parse(document)
    assert words in str(caught.value)


def test_a_store_of_others_is_named_by_its_address() -> None:
    document = _two_back_ends()
    document["routing"]["large"] = "http://192.0.2.1:9000"
    assert topology.endpoint_of(topology.parse(document), "large") == ("192.0.2.1", 9000)
