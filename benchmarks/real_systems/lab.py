"""Hosts for one scenario: a network namespace each, joined by bridges, with programs that run in them.

    client eth0 ──┐                    ┌── eth0 web       An address 10.68.N.x is on bridge `brN`, one for each N, all
                  ├─ br0 (the switch) ─┤                  in a namespace of the switch's own. A host of several
    router eth0 ──┘                    └── eth0 db        addresses has eth0, eth1, … in their order.
           eth1 ───── br1 ───── …

No address, interface or route of the machine outside is touched. Each namespace is held by a sleeping process that the
kernel ends with this one; `Lab.close` ends whatever still runs in the namespaces, known by their inodes.

Programs run with real-time priority where that is allowed: a log's times would otherwise hold what a busy machine
makes a program wait before it looks at its clock, which no packet shows.
"""

import dataclasses
import functools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage_cluster.faults.relay import Rule
from storage_cluster.hosts import namespaces, state

ROOT = Path(__file__).resolve().parents[2]
SWITCH = "switch"
HOLD = "ip link set lo up; sysctl -qw net.ipv6.conf.all.disable_ipv6=1 2>/dev/null; echo ready; exec sleep infinity"
_CUT_TO_MSS = """
import sys
from storage_cluster.hosts.offload import set_offload
set_offload(sys.argv[1], tso=False, gso=False, gro=False)
"""
_TIED = ("setpriv", "--pdeathsig", "KILL", "--")
"""The kernel ends what runs so when this process ends, however that happens."""
STARTED_S = 20.0
GRACE_S = 3.0
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class LabError(Exception):
    """Something of the scenario did not start; with its own words."""


@dataclass(frozen=True)
class Host:
    """One namespace."""

    name: str
    addresses: tuple[str, ...]
    pid: int

    @property
    def address(self) -> str:
        """Its first address."""
        return self.addresses[0]

    @property
    def enter(self) -> list[str]:
        """The argv prefix that runs a command there."""
        return ["nsenter", "--target", str(self.pid), "--net", "--"]


class Lab:
    """The hosts, their programs and a folder for configuration, data and logs."""

    def __init__(self, folder: Path, hosts: Mapping[str, str], *, is_urgent: bool = True) -> None:
        """Arguments: hosts: name to its addresses, blanks between; none for a lab of others' hosts (`hosts` is set).
        `is_urgent`: whether programs run with real-time priority, which the kernel throttles if they need all of it."""
        self._is_urgent = is_urgent
        self.folder = folder
        self.hosts: dict[str, Host] = {}
        self._programs: list[subprocess.Popen[Any]] = []
        if not hosts:
            return
        try:
            for name, addresses in {SWITCH: "", **hosts}.items():
                self.hosts[name] = Host(name, tuple(addresses.split()), self._hold(name))
            self._connect()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Lab":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything that runs in the namespaces, and so the namespaces."""
        inodes = [namespaces.inode(host.pid, "net") for host in self.hosts.values()]
        state.end(state.processes_inside(set(inodes) - {namespaces.inode("self", "net")}), GRACE_S)
        for program in self._programs:
            program.wait()
        self.hosts.clear()

    def address(self, name: str) -> str:
        """A host's first address."""
        return self.hosts[name].address

    def file(self, name: str, text: str = "") -> Path:
        """A file of the lab's folder with this text; with its folders."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    def run(self, host: str, *argv: str, check: bool = True, timeout_s: float = 120) -> str:
        """What a command prints there. Raises: LabError if it fails and `check`."""
        done = subprocess.run(
            [*self._argv(host, argv)], capture_output=True, text=True, check=False, cwd=ROOT, timeout=timeout_s
        )
        if check and done.returncode:
            raise LabError(f"`{' '.join(argv)[:200]}` on {host}: {(done.stderr or done.stdout).strip()[-600:]}")
        return done.stdout

    def tool(self, host: str, *argv: str) -> str:
        """Likewise, of a program that configures: with its failure raised, and at ordinary priority."""
        return self.run(host, *argv)

    def cut_to_mss(self, host: str, interface: str) -> None:
        """No packet longer than one segment there, as on a wire."""
        self.tool(host, sys.executable, "-c", _CUT_TO_MSS, interface)

    def python(self, host: str, module: str, *argv: str) -> str:
        """What a module of this package prints when it runs there."""
        return self.run(host, sys.executable, "-m", f"benchmarks.real_systems.{module}", *argv)

    def begin(self, host: str, *argv: str) -> subprocess.Popen[str]:
        """A command there that goes on beside what follows; `rest_of` waits for it."""
        return subprocess.Popen(
            self._argv(host, argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, cwd=ROOT, start_new_session=True,
        )  # fmt: skip

    def begin_python(self, host: str, module: str, *argv: str) -> subprocess.Popen[str]:
        """Likewise, a module of this package."""
        return self.begin(host, sys.executable, "-m", f"benchmarks.real_systems.{module}", *argv)

    def start(self, host: str, *argv: str, port: int | None = None, name: str = "") -> subprocess.Popen[bytes]:
        """A program that goes on until the lab is closed; returns when it listens on `port` of the host.

        Raises: LabError if it ends before, or does not within 20 s.
        """
        log = self.folder / f"{host}-{name or Path(argv[0]).name}.out"
        with log.open("ab") as out:
            program = subprocess.Popen(
                self._argv(host, argv), stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=ROOT,
                start_new_session=True,
            )  # fmt: skip
        self._programs.append(program)
        if port is not None:
            self.await_port(host, port, program, log)
        return program

    def start_service(self, host: str, settings: dict[str, Any]) -> None:
        """A plain Python service (`benchmarks.real_systems.http_service`), listening."""
        file = self.file(f"{host}.json", json.dumps(settings))
        words = ("-m", "benchmarks.real_systems.http_service", str(file))
        self.start(host, sys.executable, *words, port=settings["port"], name="service")

    def slow_link(self, host: str, relay: str = "storage_cluster.faults.relay", *options: str) -> "SlowLink":
        """Put a relay (a module, and its options) into a host's cable, which delays nothing yet (many kernels have no
        netem)."""
        plug, near, far = port_name(host), f"near-{host}", f"far-{host}"
        bridge = f"br{self.address(host).split('.')[2]}"
        self.tool(SWITCH, "ip", "link", "add", near, "type", "veth", "peer", "name", far)
        self.tool(SWITCH, "ip", "link", "set", plug, "nomaster")
        self.tool(SWITCH, "ip", "link", "set", far, "master", bridge)
        for place, interface in ((host, "eth0"), (SWITCH, plug), (SWITCH, near), (SWITCH, far)):
            self.cut_to_mss(place, interface)
            self.tool(place, "ip", "link", "set", interface, "up")
        argv = self._argv(SWITCH, (sys.executable, "-m", relay, plug, near, *options))
        carrying = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self._programs.append(carrying)
        link = SlowLink(carrying)
        link.delay(0)
        return link

    def await_port(
        self, host: str, port: int, program: subprocess.Popen[bytes] | None = None, log: Path | None = None
    ) -> None:
        """Until somebody listens there. Raises: LabError."""
        until = time.monotonic() + STARTED_S
        while f":{port}" not in " ".join(line.split()[3] for line in self._listeners(host)):
            over = program is not None and program.poll() is not None
            if over or time.monotonic() > until:
                said = log.read_text("utf-8", "replace")[-800:] if log else ""
                raise LabError(f"nobody listens on port {port} of {host}; {said}")
            time.sleep(0.05)

    def pids(self, host: str, word: str) -> list[int]:
        """Processes on a host whose command line has that word."""
        inside = state.processes_inside([namespaces.inode(self.hosts[host].pid, "net")])
        return [process.pid for process in inside if word in _command_line(process.pid)]

    def drop(self, host: str, rule: str, family: str = "ip", hook: str = "input") -> None:
        """An nft rule on a host that drops what it matches, and counts. On the switch: family bridge, hook forward."""
        chain = f"chain c {{\n type filter hook {hook} priority 0;\n {rule} counter drop;\n}}"
        self.nft(host, f"table {family} judge {{\n{chain}\n}}\n")

    def nft(self, host: str, rules: str) -> None:
        """Load rules of nft there."""
        self.tool(host, "nft", "-f", str(self.file(f"{host}.nft", rules)))

    def dropped_count(self, host: str, family: str = "ip") -> int:
        """How many packets that rule has dropped."""
        found = json.loads(self.tool(host, "nft", "-j", "list", "table", family, "judge"))
        rules = [item["rule"] for item in found["nftables"] if "rule" in item]
        return sum(part["counter"]["packets"] for rule in rules for part in rule["expr"] if "counter" in part)

    def _listeners(self, host: str) -> list[str]:
        return self.run(host, "ss", "-Hltn").splitlines()

    def _argv(self, host: str, argv: Sequence[str]) -> list[str]:
        return [*_TIED, *self.hosts[host].enter, *(_priority() if self._is_urgent else ()), *argv]

    def _hold(self, name: str) -> int:
        holder = subprocess.Popen(
            [*_TIED, "unshare", "--net", "sh", "-c", HOLD], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        assert holder.stdout is not None
        if holder.stdout.readline() != b"ready\n":
            raise LabError(f"the host {name} cannot be made: namespaces need root")
        self._programs.append(holder)
        return holder.pid

    def _connect(self) -> None:
        nets = sorted({address.split(".")[2] for host in self.hosts.values() for address in host.addresses})
        for net in nets:
            self.tool(SWITCH, "ip", "link", "add", f"br{net}", "type", "bridge")
            self.tool(SWITCH, "ip", "link", "set", f"br{net}", "up")
        for host in self.hosts.values():
            for number, address in enumerate(host.addresses):
                self._plug(host, number, address)

    def _plug(self, host: Host, number: int, address: str) -> None:
        port, inside = port_name(host.name, number), f"eth{number}"
        peer = ("peer", "name", inside, "netns", str(host.pid))
        self.tool(SWITCH, "ip", "link", "add", port, "type", "veth", *peer)
        self.tool(SWITCH, "ip", "link", "set", port, "master", f"br{address.split('.')[2]}", "up")
        self.tool(host.name, "ip", "address", "add", f"{address}/24", "dev", inside)
        self.tool(host.name, "ip", "link", "set", inside, "up")


class SlowLink:
    """A host's cable whose delay can be set."""

    def __init__(self, relay: subprocess.Popen[str]) -> None:
        self._relay = relay
        assert relay.stdout is not None
        if "ready" not in relay.stdout.readline():
            raise LabError("the relay of a slow link did not start")

    def delay(self, one_way_ms: float) -> None:
        """From now on, both ways."""
        rule = Rule(
            "", True, True, probability=1, delay_ns=round(one_way_ms * 1e6), jitter_ns=0, overtaken=False, seed=None
        )
        assert self._relay.stdin is not None
        self._relay.stdin.write(json.dumps([dataclasses.asdict(rule)]) + "\n")
        self._relay.stdin.flush()


def rest_of(process: subprocess.Popen[str], timeout_s: float = 120) -> str:
    """What a command of `Lab.begin` printed by its end. Raises: LabError if it failed."""
    printed, complained = process.communicate(timeout=timeout_s)
    if process.returncode:
        raise LabError(f"ended with {process.returncode}: {complained.strip()[-600:]}")
    return printed


def port_name(host: str, number: int = 0) -> str:
    """The switch's end of a host's cable."""
    return f"veth-{host}" if number == 0 else f"veth{number}-{host}"


@contextmanager
def urgent() -> Iterator[None]:
    """What is started meanwhile has real-time priority, where that is allowed."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@functools.cache
def _priority() -> tuple[str, ...]:
    words = ("chrt", "--rr", "1")
    if shutil.which(words[0]) is None or subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        return ()
    return words


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""
