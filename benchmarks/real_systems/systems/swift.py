"""OpenStack Swift from Debian's packages, on the hosts of `benchmarks.swift`.

Truth: Swift's own access logs: a line for each request at each server, with its duration and the transaction's id.
"""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from benchmarks.real_systems.judge import Verdict
from benchmarks.real_systems.lab import Host, Lab, LabError, urgent
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Call, Truth
from benchmarks.swift import hosts as swift

PUTS = """
import sys, time
from swiftclient.client import Connection
connection = Connection(authurl=sys.argv[1], user=sys.argv[2], key=sys.argv[3], auth_version="1", retries=0)
connection.put_container("judge")
for n in range(int(sys.argv[4])):
    connection.put_object("judge", f"o{n}", b"x" * 1000)
    connection.get_object("judge", f"o{n}")
"""
PROXY = re.compile(
    r"proxy-server: [\d.]+ \S+ \S+ (?P<method>[A-Z]+) (?P<target>/\S*) HTTP/1\.\d (?P<status>\d+) .* (?P<tx>tx\S+) \S+ "
    r"(?P<took>[\d.]+) \S+ \S+ (?P<began>[\d.]+) (?P<ended>[\d.]+) "
)
STORAGE = re.compile(
    r"(?P<service>account|container|object)-server: (?P<remote>\S+) - - \[[^]]*\] "
    r"\"(?P<method>[A-Z]+) (?P<target>/\S*)\" (?P<status>\d+) .*?"
    r"\"(?P<tx>tx[^\" ]*)\" \"(?P<agent>[^\"]*)\" (?P<took>[\d.]+) "
)


@scenario
class Swift(Scenario):
    """40 objects put and got, one after the other."""

    name = "swift"
    words = "OpenStack Swift (proxy, three storage hosts, three replicas); python-swiftclient"
    hosts = addresses(client="", proxy="", storage1="", storage2="", storage3="")
    needs = (
        ("swift-proxy-server", "swift-proxy"),
        ("swift-object-server", "swift-object"),
        ("swift-account-server", "swift-account"),
        ("swift-container-server", "swift-container"),
        ("memcached", "memcached"),
    )
    count = 40

    @contextmanager
    def lab(self, folder: Path) -> Iterator[Lab]:
        shape, place = swift.shape(), tempfile.mkdtemp(prefix="twintap-real-swift-")
        os.environ[swift.STATE_DIR_VARIABLE] = place
        try:
            with urgent():
                swift.up(daemons=False)
            running = swift.load()
            lab = Lab(folder, {})
            lab.hosts.update(
                {host.name: Host(host.name, (host.address,), running.holders[host.name].pid) for host in shape.hosts}
            )
            yield lab
        except click.UsageError as error:
            raise LabError(error.format_message()) from error
        finally:
            for log in Path(place).glob("hosts/*/*.log"):
                shutil.copy(log, folder / f"{log.parent.name}-{log.name}")
            swift.down()
            shutil.rmtree(place, ignore_errors=True)

    def load(self, lab: Lab, count: int) -> None:
        """Put and get so many objects."""
        environment = swift.environment()
        words = [environment[name] for name in ("ST_AUTH", "ST_USER", "ST_KEY")]
        with_proxy = ["env", f"no_proxy={environment['no_proxy']}"]
        lab.run("client", *with_proxy, sys.executable, "-c", PUTS, *words, str(count), check=False)

    def start(self, lab: Lab) -> None:
        self.load(lab, 1)
        for log in swift.state_dir().glob("hosts/*/swift.log"):
            os.truncate(log, 0)

    def traffic(self, lab: Lab) -> Truth:
        self.load(lab, self.count)
        shape = swift.shape()
        ports = {(service.host, service.name): f"{service.address}:{service.port}" for service in shape.services}
        names = {ports["proxy", "proxy"]: "swift-proxy"}
        roots: list[Call] = []
        inner: list[tuple[re.Match[str], str]] = []
        for log in sorted(swift.state_dir().glob("hosts/*/swift.log")):
            text = log.read_text("utf-8", "replace")
            roots += [root_call(found, ports["proxy", "proxy"]) for found in PROXY.finditer(text)]
            for found in STORAGE.finditer(text):
                server = ports[log.parent.name, found["service"]]
                if server.partition(":")[0] != found["remote"]:  # else within the host, where nothing is captured
                    inner.append((found, server))
                    names[server] = f"swift-{found['service']}"
        calls = [*roots, *inner_calls(inner, {call.id: call.server_ns for call in roots})]
        return Truth(calls=calls, names=names, products=("swift", "quorum", "object server", "container server"))

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        count = said.report["requests"]["handoffs_count"]
        found = sum(row["kind"] == "handoffs" for row in said.findings)
        true = int(truth.more.get("handoffs", 0))
        verdict = Verdict(
            "handoffs (writes), finding",
            f"{true}, {int(true > 0)}",
            f"{count}, {found}",
            count == true and found == (true > 0),
        )
        return [verdict]


def root_call(found: "re.Match[str]", server: str) -> Call:
    began, ended = (round(float(found[name]) * 1e9) for name in ("began", "ended"))
    path = found["target"]
    return Call(found["tx"], server, path, 0, began, ended - began, 1_000_000, status=int(found["status"]), parent="")


def inner_calls(lines: "list[tuple[re.Match[str], str]]", roots_ns: dict[str, int | None]) -> list[Call]:
    """What Swift's servers asked each other. The proxy's calls are of its request; an object server's (of a container
    server), of the object's PUT that this object server got with the same id."""
    puts = {
        (server.partition(":")[0], found["tx"]): f"{server} {number}"
        for number, (found, server) in enumerate(lines)
        if found["service"] == "object"
    }
    calls = []
    for number, (found, server) in enumerate(lines):
        took = round(float(found["took"]) * 1e9)
        parent = found["tx"] if found["agent"].startswith("proxy") else puts.get((found["remote"], found["tx"]))
        # A storage server's log has no start; its lines are in the order of ends.
        call = Call(f"{server} {number}", server, found["target"], 0, number, took, 100_000, parent=parent)
        call.status, call.most_ns = int(found["status"]), roots_ns.get(found["tx"])
        calls.append(call)
    return calls
