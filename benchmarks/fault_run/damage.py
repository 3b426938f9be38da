"""The schedule: which damage is done to which host, when. A function of the seed.

Rule: the damage of one round is on one host (a zone of the ring), so of three replicas two stay sound. The next round
begins when the replicas have converged.
"""

import dataclasses
import random
from collections.abc import Iterator, Sequence

from storage_cluster.faults.kinds import Fault, Parameters

MS = 1_000_000
DEVICES = ("d1", "d2")


@dataclasses.dataclass(frozen=True)
class Round:
    """Damage to one host, for a while."""

    name: str
    host: str
    faults: tuple[Fault, ...]
    hold_s: float


def rounds(seed: int, storage_hosts: Sequence[str], front_host: str) -> Iterator[Round]:
    """Rounds without end; every kind of damage comes before one comes again. `front_host`: whom clients talk to."""
    source = random.Random(f"{seed}/rounds")
    while True:
        kinds = list(_KINDS)
        source.shuffle(kinds)
        for name in kinds:
            host = front_host if name.startswith("proxy") else source.choice(list(storage_hosts))
            faults = tuple(_with_peer(fault, front_host) for fault in _KINDS[name](host, source))
            yield Round(name.replace("proxy", front_host), host, faults, source.uniform(2.0, 6.0))


def _with_peer(fault: Fault, front_host: str) -> Fault:
    if fault.parameters.peer != "proxy":
        return fault
    return dataclasses.replace(fault, parameters=dataclasses.replace(fault.parameters, peer=front_host))


def _fault(kind: str, target: str, **parameters: object) -> Fault:
    return Fault(kind, target, Parameters(**parameters))  # type: ignore[arg-type]


def _server(host: str, source: random.Random) -> str:
    return f"{host}/{source.choice(('object', 'container', 'account', 'daemons'))}"


def _device(host: str, source: random.Random) -> str:
    return f"{host}/{source.choice(DEVICES)}"


def _flapping(host: str, source: random.Random) -> list[Fault]:
    """A server that dies three times in a row."""
    faults = []
    for number, server in enumerate((f"{host}/object", f"{host}/container", f"{host}/object")):
        after_ns = number * 900 * MS
        faults.append(Fault("kill", server, after_ns=after_ns, for_ns=300 * MS + source.randrange(300 * MS)))
    return faults[:2]


_KINDS = {
    "host killed": lambda host, source: [_fault("kill", host)],
    "host down (cut, then killed)": lambda host, source: [_fault("cut", host), _fault("kill", host)],
    "server killed": lambda host, source: [_fault("kill", _server(host, source))],
    "servers die and come back": _flapping,
    "host stopped": lambda host, source: [_fault("stop", host)],
    "server stopped": lambda host, source: [_fault("stop", _server(host, source))],
    "host cut off": lambda host, source: [_fault("cut", host)],
    "host cut off from the proxy": lambda host, source: [_fault("cut", host, peer="proxy")],
    "ports closed": lambda host, source: [_fault("refuse", host)],
    "lossy link": lambda host, source: [_fault("drop", host, probability=0.15)],
    "slow link": lambda host, source: [_fault("delay", host, delay_ns=40 * MS, jitter_ns=20 * MS, seed=1)],
    "narrow link": lambda host, source: [_fault("bandwidth", host, rate_bits_per_s=3_000_000)],
    "servers restarted": lambda host, source: [_fault("restart", host)],
    "disks full": lambda host, source: [_fault("full-disk", f"{host}/{device}") for device in DEVICES],
    "disk full": lambda host, source: [_fault("full-disk", _device(host, source))],
    "disk failing": lambda host, source: [_fault("bad-disk", _device(host, source), probability=0.4, seed=1)],
    "disk slow": lambda host, source: [_fault("slow-disk", _device(host, source), latency_ns=80 * MS)],
    "bits flipped": lambda host, source: [
        _fault("bit-rot", _device(host, source), seed=source.randrange(1 << 30)) for _ in range(6)
    ],
    "proxy killed": lambda host, source: [_fault("kill", host)],
    "proxy stopped": lambda host, source: [_fault("stop", host)],
    "proxy cut off": lambda host, source: [_fault("cut", host)],
}
