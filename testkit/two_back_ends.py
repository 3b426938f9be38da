"""Two small S3 stores and the routing proxy before them, in this process, on loopback."""

from pathlib import Path

from storage_cluster import topology as topologies
from storage_cluster.topology import UPDATERS, Device, Host, RingShape, RoutingOptions, S3Options, Topology
from testkit.loopback_store import CALM, LoopbackStore

STORES = {"small": "ext3", "large": "ext4"}
"""Which host has which objects. The names are those of the bundled topology; there are no such file systems here."""


class TwoBackEnds(LoopbackStore):
    """A running routing proxy with its stores; use as a context manager."""

    def __init__(self, root: Path, routing: RoutingOptions) -> None:
        """`routing` without the stores' addresses."""
        self._routing = routing
        super().__init__(root, UPDATERS)

    def make_topology(self) -> Topology:
        """The shape of the bundled topology, its ports bound."""
        names = ("account", "container", "object", "s3")
        stores = tuple(
            Host(
                name,
                "127.0.0.1",
                tuple(self.bind(service, name) for service in names),
                (Device(name, "d1", 1),),
                store=name,
            )
            for name in STORES.values()
        )
        front = Host("proxy", "127.0.0.1", (self.bind("routing", "proxy"),))
        users = topologies.load(topologies.BUNDLED_FILE).users
        return Topology(
            (Host("client", "127.0.0.1"), *stores, front),
            users,
            RingShape(partition_power=2, replicas=1, hash_suffix="test"),
            intervals=CALM,
            s3=S3Options(info_cache_s=0.0),
            routing=self._routing,
        )
