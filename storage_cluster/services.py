"""The table of services: what a host of a topology can run, how its process is made, and what it needs.

Topology, `up`, status and a server's process all work from this table, so a topology names any service on any host.
What makes a server of ours is in `servers/process.py`, by the same name. A service that is not here is a command of the
topology's own (`[commands]`), which needs nothing of the cluster's.
"""

import dataclasses
import enum

BALANCER_PROGRAM = "haproxy"
"""Also the name of its Debian package."""


class Process(enum.Enum):
    """What a service's process is."""

    SERVER = "a server of ours"
    DAEMONS = "the daemons of a storage host"
    BALANCER = "HAProxy"
    COMMAND = "a command that the topology gives"


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of service."""

    name: str
    shown: str
    """The name in `status`."""
    port: int = 0
    """Where it listens unless the topology says otherwise; 0: nowhere."""
    process: Process = Process.SERVER
    needs_rings: bool = True
    """It asks servers of its store, which it finds through the rings."""
    holds_data: bool = False
    """The rings place its data on its host's devices."""
    may_use_devices: bool = False
    """Its host may have devices although no ring places data there."""
    faces_clients: bool = False
    """Lines in its log are those of Swift's proxy."""
    has_workers: bool = False
    """Several processes may share its port; how many is `workers` of the topology's table of its name."""
    per_cluster_max: int | None = None
    before: str = ""
    """Of a balancer: the service that it spreads requests over."""
    program: str = ""
    """What has to be installed."""


_SERVICES = (
    Kind("proxy", "swift-proxy", 8080, faces_clients=True, has_workers=True),
    Kind("auth", "swift-auth", 5000, faces_clients=True),
    Kind("account", "swift-account", 6202, holds_data=True),
    Kind("container", "swift-container", 6201, holds_data=True),
    Kind("object", "swift-object", 6200, holds_data=True),
    Kind("daemons", "swift-daemons", process=Process.DAEMONS),
    Kind("s3", "s3-gateway", 8085, faces_clients=True, has_workers=True),
    Kind(
        "routing",
        "routing-proxy",
        8080,
        faces_clients=True,
        needs_rings=False,
        may_use_devices=True,
        per_cluster_max=1,
    ),
    Kind("reservations", "reservation-book", 6300, faces_clients=True, per_cluster_max=1),
    Kind(
        "balancer",
        "balancer",
        8085,
        Process.BALANCER,
        per_cluster_max=1,
        before="s3",
        program=BALANCER_PROGRAM,
    ),
    Kind(
        "proxy-balancer",
        "proxy-balancer",
        8080,
        Process.BALANCER,
        per_cluster_max=1,
        before="proxy",
        program=BALANCER_PROGRAM,
    ),
)

KINDS = {kind.name: kind for kind in _SERVICES}
"""All services of the cluster's own, by name."""

RING_SERVICES = tuple(kind.name for kind in _SERVICES if kind.holds_data)
"""Services whose data the ring places on devices: account, container, object."""


def kind_of(name: str) -> Kind:
    """The kind of that name; that of a topology's own command if the table has none."""
    return KINDS.get(name) or Kind(name, name, process=Process.COMMAND, needs_rings=False)
