"""The table of services: topology, processes and status work from it, and a topology names any service on any host."""

import copy
import tomllib

import pytest

from storage_cluster import services, topology
from storage_cluster.servers import process
from storage_cluster.services import Process


def _document(name: str = "several-proxies") -> dict:
    return tomllib.loads(topology.find(name).read_text("utf-8"))


def test_every_server_of_the_table_can_be_made_and_no_other() -> None:
    servers = {kind.name for kind in services.KINDS.values() if kind.process is Process.SERVER}
    assert process.SERVERS.keys() == servers


def test_a_service_has_the_tables_port_unless_the_topology_says_otherwise() -> None:
    document = _document("six-hosts")
    document["services"] = {"object": 7200}
    ports = {service.name: service.port for service in topology.parse(document).services}
    assert ports["object"] == 7200
    assert {name: port for name, port in ports.items() if name != "object"} == {
        "proxy": 8080,
        "auth": 5000,
        "account": 6202,
        "container": 6201,
        "daemons": 0,
        "s3": 8085,
    }


def test_any_host_may_run_any_service() -> None:
    document = _document()
    document["host"][1]["services"] += ["s3", "reservations", "cache"]
    document["host"][2]["services"] += ["auth"]
    document["host"][4]["services"].remove("auth")
    document["services"]["cache"] = 11211
    document["commands"] = {"cache": ["memcached", "-l", "{address}", "-p", "{port}"]}
    found = topology.parse(document)
    assert [service.name for service in found.host("balancer").services][1:] == ["s3", "reservations", "cache"]
    assert found.service("auth").host == "proxy1"
    assert found.service("cache").command == ("memcached", "-l", "10.77.0.19", "-p", "11211")
    assert services.kind_of("cache").shown == "cache"


def test_several_proxies_of_several_workers() -> None:
    found = topology.parse(_document())
    assert [(s.host, s.process_name) for s in found.services if s.name == "proxy"] == [
        ("proxy1", "proxy"),
        ("proxy1", "proxy-2"),
        ("proxy2", "proxy"),
        ("proxy2", "proxy-2"),
    ]
    assert [service.host for service in found.behind(found.service("proxy-balancer"))] == ["proxy1", "proxy2"]
    assert found.auth_url == "http://10.77.0.19:8080/auth/v1.0"


def test_one_proxy_remembers_long_and_several_for_a_second() -> None:
    assert topology.load(topology.find("six-hosts")).proxy_info_cache_s == 60
    assert topology.parse(_document()).proxy_info_cache_s == 1
    alone = _document("six-hosts") | {"proxy": {"workers": 2, "info_cache_s": 0.5}}
    assert topology.parse(alone).proxy_info_cache_s == 0.5


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda d: d["host"][2]["services"].append("proxy"), "proxy1 names the service 'proxy' twice"),
        (lambda d: d["host"][2].update(services=["proxy-balancer"]), "one host may run 'proxy-balancer'"),
        (lambda d: [d["host"].pop(2), d["host"].pop(2)], "has to be before at least one host with 'proxy'"),
        (lambda d: d.update(proxy={"workers": 0}), r"\[proxy\] workers is 0"),
        (lambda d: d.update(proxy={"info_cache_s": -1}), r"\[proxy\] info_cache_s is -1"),
        (lambda d: d["host"][2].update(services=["proxy", "cache"]), "no service 'cache'; there are: proxy, auth"),
        (lambda d: d.update(commands={"proxy": ["true"]}), "a service of the cluster's own"),
        (lambda d: d.update(commands={"cache": "memcached"}), "cache is 'memcached', not a list of words"),
    ],
)
def test_what_cannot_be_is_named(change, named: str) -> None:
    document = copy.deepcopy(_document())
    change(document)
    with pytest.raises(topology.TopologyError, match=named):
        topology.parse(document)
