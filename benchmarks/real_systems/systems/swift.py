"""OpenStack Swift from Debian's packages, on the hosts of `benchmarks.swift`.

Truth: Swift's own access logs: a line for each request at each server, with its duration and the transaction's id.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from benchmarks.real_systems.lab import Host, Lab, LabError, urgent
from benchmarks.real_systems.said import Said, say
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Call, Fault, Truth
from benchmarks.real_systems.verdict import Verdict
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
PRIMARIES = """
import json, sys
from swift.common.ring import RingData
ring = RingData.load(sys.argv[1] + "/object.ring.gz")
names = [{(ring.devs[of[part]]["ip"], ring.devs[of[part]]["device"]) for of in ring._replica2part2dev_id}
    for part in range(len(ring._replica2part2dev_id[0]))]
print(sum((address, device) not in names[part] for address, device, part in json.load(open(sys.argv[2]))))
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
    least_inferred = 1.0

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
            shutil.copytree(Path(place) / "rings", folder / "rings", dirs_exist_ok=True)
            swift.down()
            shutil.rmtree(place, ignore_errors=True)

    def load(self, lab: Lab, count: int) -> None:
        """Put and get so many objects."""
        self.client(lab, PUTS, count)

    def client(self, lab: Lab, script: str, count: int) -> str:
        """What a script of python-swiftclient's prints; its words are URL, user, key and a number."""
        environment = swift.environment()
        words = [environment[name] for name in ("ST_AUTH", "ST_USER", "ST_KEY")]
        with_proxy = ["env", f"no_proxy={environment['no_proxy']}"]
        return lab.run("client", *with_proxy, sys.executable, "-c", script, *words, str(count), check=False)

    def start(self, lab: Lab) -> None:
        self.load(lab, 1)
        for log in swift.state_dir().glob("hosts/*/swift.log"):
            os.truncate(log, 0)

    def traffic(self, lab: Lab) -> Truth:
        self.load(lab, self.count)
        return self.truth()

    def truth(self) -> Truth:
        """What Swift's logs say."""
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
        folder = said.trace.parents[1]
        with_ring = folder / f"{said.trace.parent.name}-ring"
        shutil.rmtree(with_ring, ignore_errors=True)
        with_ring.mkdir()
        captures = self.captures(folder, said.trace.parent.name.removeprefix("said-"))
        again = say([*captures, "--ring", str(folder / "lab" / "rings")], with_ring)
        true, least = int(truth.more.get("handoffs", 0)), self.least_inferred
        return [
            _handoffs("handoffs (writes), finding", said, true, least),
            _handoffs("handoffs with --ring", again, true, 1.0),
        ]


@scenario
class ObjectServerDown(Swift):
    """Half of the time one object server is not there."""

    name = "swift-object-server-down"
    words = "the same; storage3's object server killed after 15 of 45 objects"
    count, before = 45, 15
    least_inferred = 0.8

    def traffic(self, lab: Lab) -> Truth:
        self.load(lab, self.before)
        for pid in lab.pids("storage3", "object-server.conf"):
            os.kill(pid, signal.SIGKILL)
        self.load(lab, self.count)
        truth = self.truth()
        truth.more["handoffs"] = handoffs(lab.folder, swift.state_dir())
        truth.fault = Fault("connection_refused on storage3", ("connection_refused",), ("storage3",))
        truth.only = ("first finding", "findings", "service", "words", "products", "packets")
        return truth


def handoffs(folder: Path, state: Path) -> int:
    """Objects' writes that a device took which the ring does not name, by the servers' logs and Swift's own code."""
    wrote = [
        (log.parent.name, *found["target"].strip("/").split("/", 2)[:2])
        for log in sorted(state.glob("hosts/storage*/swift.log"))
        for found in STORAGE.finditer(log.read_text("utf-8", "replace"))
        if found["service"] == "object" and found["method"] == "PUT" and found["status"].startswith("2")
    ]
    shape = swift.shape()
    at = {host.name: host.address for host in shape.hosts}
    file = folder / "wrote.json"
    file.write_text(json.dumps([[at[host], device, int(partition)] for host, device, partition in wrote]), "utf-8")
    done = subprocess.run(
        ["/usr/bin/python3", "-c", PRIMARIES, str(state / "rings"), str(file)], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise LabError(f"Swift's ring cannot be read: {done.stderr.strip()[-300:]}")
    return int(done.stdout)


def _handoffs(statement: str, said: Said, true: int, least: float) -> Verdict:
    """Arguments: least: share of the true ones to be found; more than there are is always wrong."""
    count = said.report["requests"]["handoffs_count"]
    found = sum(row["kind"] == "handoffs" for row in said.findings)
    right = least * true <= count <= true and (found > 0) == (true > 0)
    wanted = f"{true}" if least == 1 else f"{true}, at least {least:.0%} of them found"
    return Verdict(statement, f"{wanted}, {'a finding' if true else 'none'}", f"{count}, {found}", right)


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
