"""Agents on hosts around one with a collector and a viewer; and the faults that are injected into them."""

import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.faults_of_service.parts import Disk, Part
from testkit.live_hosts import Host

SESSION = "s"
ADDRESS = "10.9.0.1"
AGENTS_PORT, COLLECTOR_PORT, VIEWER_PORT = 8710, 8711, 8765
SHARE_CUT = 0.02
"""Of requests that the witness cuts off before, and as many after."""
GRACE_S = 20.0
"""After a fault is over, until which a part may still show it: an agent waits up to 30 s, a start takes seconds."""
COUNT_LEFT = 2
"""Descriptors that a part may still open while they are exhausted."""
CLOCK_STEP_S = 2.0
"""Most by which a clock is stepped."""
STEP_AHEAD_S = 3.0
TRACER = (sys.executable, "-P", "-m", "tracer")


@dataclass(frozen=True)
class Done:
    """A fault that was made, by the machine's clock."""

    kind: str
    target: str
    begin: float
    end: float


@dataclass
class Service:
    """All parts. `folder` has `data` and a `spool-HOST` each, which are small disks, and what is written by the run."""

    folder: Path
    hosts: dict[str, Host]
    """Those with an agent, by name; collector and viewer are on a host of their own."""
    seed: int
    offsets_ns: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By host: how far its clock is ahead, and since when (ns)."""
    traffic: list[Part] = field(default_factory=list)
    """What sends and answers requests; nothing is done to it."""
    done: list[Done] = field(default_factory=list)
    running: dict[str, str] = field(default_factory=dict)
    """Faults that are in force, by target."""

    def __post_init__(self) -> None:
        self.data = self.folder / "data"
        self.live_trace = self.data / "sessions" / SESSION / "live"
        self.acknowledged_log = self.folder / "acknowledged.jsonl"
        python = (sys.executable, "-m")
        witness = ("benchmarks.faults_of_service.witness", f"{ADDRESS}:{AGENTS_PORT}", f"{ADDRESS}:{COLLECTOR_PORT}")
        arguments = (str(self.acknowledged_log), str(self.seed), str(SHARE_CUT))
        self.witness = Part("witness", lambda: (*python, *witness, *arguments), "ready")
        collect = ("collect", "--data", str(self.data), "--listen", f"{ADDRESS}:{COLLECTOR_PORT}")
        token = ("--token-file", str(self.token_file), "--plain-http")
        self.collector = Part("collector", lambda: (*TRACER, *collect, *token), "collecting at")
        view = ("view", str(self.live_trace), "--listen", f"127.0.0.1:{VIEWER_PORT}", "--no-browser")
        self.viewer = Part("viewer", lambda: (*TRACER, *view), "http://")
        self.agents = {name: self._agent(host) for name, host in self.hosts.items()}
        self.disks = {name: Disk(self.folder / name) for name in ("data", *(f"spool-{host}" for host in self.hosts))}
        self.rotate_token()

    @property
    def token_file(self) -> Path:
        """What collector and agents have the token from."""
        return self.folder / "token"

    @property
    def token(self) -> str:
        """What it is now."""
        return self.token_file.read_text().strip()

    def rotate_token(self) -> None:
        """Another one from now on: the collector takes it at its next start, agents when theirs is refused."""
        fresh = self.token_file.with_name(".token")
        fresh.write_text(secrets.token_hex(16) + "\n")
        fresh.rename(self.token_file)

    @property
    def parts(self) -> dict[str, Part]:
        """Those that faults are made to, by name."""
        return {"collector": self.collector, "viewer": self.viewer, **{f"agent {h}": a for h, a in self.agents.items()}}

    def _agent(self, host: Host) -> Part:
        def argv() -> tuple[str, ...]:
            offset_ns, since_ns = self.offsets_ns.get(host.name, (0, 0))
            return (
                *host.enter, *TRACER, "capture", "-i", host.interface, "--host", host.name,
                "--collector", f"http://{ADDRESS}:{AGENTS_PORT}", "--token-file", str(self.token_file),
                "--session", SESSION, "--plain-http", "--spool", str(self.folder / f"spool-{host.name}"),
                "--clock-error", f"offset_ns={offset_ns},since_ns={since_ns}", "port", "8080",
            )  # fmt: skip

        return Part(f"agent {host.name}", argv, "capturing on")

    def hurt_for(self, target: str, seconds: float) -> None:
        """From now on, for so long and `GRACE_S` more, a part may fail."""
        part = self.parts[target]
        part.hurt_until = max(part.hurt_until, time.time() + seconds + GRACE_S)


Fault = Callable[[Service, str, float, random.Random], None]
"""Made to a target for so many seconds, and undone."""


def faults(service: Service, source: random.Random, until: float) -> Iterator[Done]:
    """Make faults one after the other until then, every kind before one comes again: to collector and viewer, and to
    two of the agents."""
    while True:
        kinds = [(kind, target) for kind, (_, targets) in KINDS.items() for target in targets if target != AGENT]
        agents = [kind for kind, (_, targets) in KINDS.items() if AGENT in targets]
        kinds += [(kind, f"agent {host}") for kind in agents for host in source.sample(sorted(service.agents), 2)]
        source.shuffle(kinds)
        for kind, target in kinds:
            hold_s, pause_s = source.uniform(0.5, 7), source.uniform(0.5, 6)
            if time.time() + hold_s + pause_s > until:
                return
            begin = time.time()
            service.running[target] = kind
            KINDS[kind][0](service, target, hold_s, source)
            service.running.pop(target)
            done = Done(kind, target, begin, time.time())
            service.done.append(done)
            yield done
            time.sleep(pause_s)


def _end_with(number: signal.Signals) -> Fault:
    def make(service: Service, target: str, hold_s: float, _source: random.Random) -> None:
        part = service.parts[target]
        service.hurt_for(target, hold_s + 60)
        part.end(number)
        time.sleep(hold_s)
        start(service, target)
        part.hurt_until = time.time() + GRACE_S

    return make


def start(service: Service, target: str) -> None:
    """Start a part until it stays: an agent gives up where the collector refuses, a viewer where there is no trace."""
    deadline = time.monotonic() + 120
    while not service.parts[target].start():
        if time.monotonic() > deadline:
            raise SystemExit(f"{target} does not start: {[line.text for line in service.parts[target].lines[-3:]]}")
        time.sleep(1)


def _stop(service: Service, target: str, hold_s: float, _source: random.Random) -> None:
    service.hurt_for(target, hold_s)
    service.parts[target].signal(signal.SIGSTOP)
    time.sleep(hold_s)
    service.parts[target].signal(signal.SIGCONT)


def _disk_full(service: Service, target: str, hold_s: float, _source: random.Random) -> None:
    disk = service.disks["data" if target == "collector" else f"spool-{target.removeprefix('agent ')}"]
    service.hurt_for(target, hold_s)
    disk.fill()
    time.sleep(hold_s)
    disk.empty()


def _no_descriptors(service: Service, target: str, hold_s: float, _source: random.Random) -> None:
    service.hurt_for(target, hold_s)
    service.parts[target].limit_descriptors(COUNT_LEFT)
    time.sleep(hold_s)
    service.parts[target].limit_descriptors(None)


def _clock_stepped(service: Service, target: str, hold_s: float, source: random.Random) -> None:
    """The agent begins again with the right time, and steps a moment later."""
    host = target.removeprefix("agent ")
    offset_ns = round(source.uniform(-CLOCK_STEP_S, CLOCK_STEP_S) * 1e9)
    service.offsets_ns[host] = (offset_ns, time.time_ns() + round((hold_s + STEP_AHEAD_S) * 1e9))
    _end_with(signal.SIGTERM)(service, target, hold_s, source)
    time.sleep(STEP_AHEAD_S)


def _token_rotated(service: Service, target: str, hold_s: float, source: random.Random) -> None:
    service.hurt_for(target, hold_s + 60)
    service.rotate_token()
    _end_with(signal.SIGTERM)(service, target, hold_s, source)


def _network_cut(service: Service, target: str, hold_s: float, _source: random.Random) -> None:
    """Between an agent and its collector; what it captures goes on."""
    enter = service.hosts[target.removeprefix("agent ")].enter
    cut = f"add table inet cut; add chain inet cut out {{ type filter hook output priority 0; }}; {CUT}"
    subprocess.run([*enter, "nft", cut], check=True)
    time.sleep(3 * hold_s)
    subprocess.run([*enter, "nft", "delete table inet cut"], check=True)


CUT = f"add rule inet cut out tcp dport {AGENTS_PORT} drop"
AGENT = "agent"
"""Any of them."""
KINDS: dict[str, tuple[Fault, tuple[str, ...]]] = {
    "killed": (_end_with(signal.SIGKILL), ("collector", "viewer", AGENT)),
    "ended": (_end_with(signal.SIGTERM), ("collector", "viewer", AGENT)),
    "stopped": (_stop, ("collector", "viewer", AGENT)),
    "disk full": (_disk_full, ("collector", AGENT)),
    "no descriptors": (_no_descriptors, ("collector", "viewer", AGENT)),
    "clock stepped": (_clock_stepped, (AGENT,)),
    "token rotated": (_token_rotated, ("collector",)),
    "network cut": (_network_cut, (AGENT,)),
}
