"""Swift's configuration for one topology: files of `/etc/swift` for each host, rings.

Debian's packaged defaults, with what a cluster of this size on one machine needs: addresses, as many workers as cores,
every middleware that the packages carry for Swift's own API, logs over UDP within the host. Requests are as durable as
Swift makes them by default: a file and its directory are synced before an object's PUT is answered.

Source: Swift 2.30's deployment guide and the packages' own /etc/swift.
"""

import os
import subprocess
from pathlib import Path

from storage_cluster import erasure, ring_builder
from storage_cluster.policies import ERASURE_CODING
from storage_cluster.services import RING_SERVICES
from storage_cluster.topology import Host, Service, Topology

LOG_PORT = 514
PROXY_PIPELINE = (
    "catch_errors gatekeeper healthcheck proxy-logging cache listing_formats container_sync bulk tempurl formpost "
    "ratelimit tempauth staticweb copy container-quotas account-quotas slo dlo versioned_writes symlink "
    "proxy-logging proxy-server"
)
_FILTERS = {
    # name in the pipeline: its egg entry point and what differs from the default
    "catch_errors": "catch_errors",
    "gatekeeper": "gatekeeper",
    "healthcheck": "healthcheck",
    "proxy-logging": "proxy_logging",
    "cache": "memcache\nmemcache_servers = 127.0.0.1:11211",
    "listing_formats": "listing_formats",
    "container_sync": "container_sync",
    "bulk": "bulk",
    "tempurl": "tempurl",
    "formpost": "formpost",
    "ratelimit": "ratelimit",
    "staticweb": "staticweb",
    "copy": "copy",
    "container-quotas": "container_quotas",
    "account-quotas": "account_quotas",
    "slo": "slo",
    "dlo": "dlo",
    "versioned_writes": "versioned_writes\nallow_versioned_writes = true\nallow_object_versioning = true",
    "symlink": "symlink",
    "tempauth": (
        "tempauth\nuser_admin_admin = admin .admin .reseller_admin\nuser_admin_auditor = admin_ro .reseller_reader\n"
        "user_test_tester = testing .admin\nuser_test_tester2 = testing2 .admin\nuser_test_tester3 = testing3\n"
        "user_test2_tester2 = testing2 .admin\nuser_test5_tester5 = testing5 service"
    ),
}
_MEMCACHE_CONF = """\
[memcache]
connect_timeout = 5
pool_timeout = 10
io_timeout = 10
tries = 3
error_suppression_limit = 1000
"""
"""Patience with memcached: on a busy machine Swift's own would lose the tokens that tempauth keeps there."""
_SWIFT_CONF = """\
[swift-hash]
swift_hash_path_suffix = {suffix}
swift_hash_path_prefix =
"""
_POLICY = """\
[storage-policy:{policy.index}]
name = {policy.name}
aliases = {aliases}
default = {default}
deprecated = {policy.deprecated}
"""
_FRAGMENTS = """\
policy_type = erasure_coding
ec_type = {backend}
ec_num_data_fragments = {policy.data_fragments}
ec_num_parity_fragments = {policy.parity_fragments}
ec_object_segment_size = {policy.segment_bytes}
"""
_DEFAULTS = """\
[DEFAULT]
bind_ip = {address}
bind_port = {port}
user = root
workers = {workers}
backlog = 4096
log_udp_host = 127.0.0.1
log_udp_port = {log_port}
log_level = INFO
devices = {devices}
mount_check = false
disable_fallocate = false
conn_timeout = 5
node_timeout = 30
"""
"""The timeouts: on a busy machine Swift's own would make answers 503 that a calm one gives."""
_STORAGE = """
[pipeline:main]
pipeline = healthcheck recon {name}-server
[app:{name}-server]
use = egg:swift#{name}
[filter:healthcheck]
use = egg:swift#healthcheck
[filter:recon]
use = egg:swift#recon
recon_cache_path = {cache}
"""
DAEMONS = {
    # daemon: (section, seconds between its rounds); those that a visible behaviour depends on
    "swift-container-updater": ("container-updater", 1),
    "swift-object-updater": ("object-updater", 5),
    "swift-object-expirer": ("object-expirer", 2),
    "swift-account-reaper": ("account-reaper", 5),
}


def write(topology: Topology, host: Host, directory: Path, data_dir: Path) -> None:
    """All of one host's `/etc/swift` but the rings."""
    directory.mkdir(parents=True)
    (directory / "swift.conf").write_text(_swift_conf(topology), "utf-8")
    (directory / "memcache.conf").write_text(_MEMCACHE_CONF, "utf-8")
    for service in swift_services(host):
        head = _DEFAULTS.format(
            address=service.address, port=service.port, workers=os.cpu_count(), log_port=LOG_PORT, devices=data_dir
        )
        rest = _proxy() if service.name == "proxy" else _STORAGE.format(name=service.name, cache=directory)
        text = head + rest + _daemon_sections(service.name, directory)
        (directory / f"{service.name}-server.conf").write_text(text, "utf-8")
    expirer = (
        "[DEFAULT]\nuser = root\n"
        + f"log_udp_host = 127.0.0.1\nlog_udp_port = {LOG_PORT}\n"
        + _daemon_sections("object", directory)
    )
    pipeline = "[pipeline:main]\npipeline = catch_errors proxy-server\n[app:proxy-server]\nuse = egg:swift#proxy\n"
    catch = "[filter:catch_errors]\nuse = egg:swift#catch_errors\n"
    (directory / "object-expirer.conf").write_text(expirer + pipeline + catch, "utf-8")


def swift_services(host: Host) -> list[Service]:
    """Those of a host that Swift has as servers: tempauth is a part of its proxy, daemons are started by name."""
    return [service for service in host.services if service.name in ("proxy", *RING_SERVICES)]


def build_rings(topology: Topology, directory: Path) -> None:
    """All rings, by Swift's own builder: two, and one for each policy. Raises: subprocess.CalledProcessError."""
    directory.mkdir(parents=True)
    for name, shape in ring_builder.shapes(topology).items():
        builder = str(directory / f"{name}.builder")
        _ring_builder(builder, "create", str(shape.partition_power), str(shape.replicas), "0")
        for device in topology.devices:
            service = topology.service(name.partition("-")[0], device.host)
            place = f"r1z{device.zone}-{service.address}:{service.port}/{device.name}"
            _ring_builder(builder, "add", place, str(device.weight))
        _ring_builder(builder, "rebalance", "1")


def _ring_builder(*argv: str) -> None:
    subprocess.run(["swift-ring-builder", *argv], check=True, capture_output=True)


def _swift_conf(topology: Topology) -> str:
    policies = [
        _POLICY.format(policy=each, aliases=", ".join(each.names), default=each is topology.policies.default)
        + (_FRAGMENTS.format(policy=each, backend=erasure.BACKEND) if each.kind == ERASURE_CODING else "")
        for each in topology.policies
    ]
    return _SWIFT_CONF.format(suffix=topology.ring.hash_suffix) + "".join(policies)


def _proxy() -> str:
    sections = [f"[pipeline:main]\npipeline = {PROXY_PIPELINE}\n"]
    sections.append(
        "[app:proxy-server]\nuse = egg:swift#proxy\naccount_autocreate = true\nallow_account_management = true\n"
    )
    sections += [f"[filter:{name}]\nuse = egg:swift#{lines}\n" for name, lines in _FILTERS.items()]
    return "\n" + "\n".join(sections)


def _daemon_sections(service: str, cache: Path) -> str:
    own = {section: seconds for section, seconds in DAEMONS.values() if section.startswith(service)}
    extra = {"account-reaper": "delay_reaping = 0\n"}
    return "".join(
        f"[{section}]\ninterval = {seconds}\nrecon_cache_path = {cache}\n{extra.get(section, '')}"
        for section, seconds in own.items()
    )
