"""An S3 store in a namespace of its own: `python -m benchmarks.real_systems.s3_server ours|rgw FOLDER ADDRESS PORT`.

Our gateway stands before a small store on loopback; Ceph's RGW before one monitor and one OSD. Only the gateway is at
ADDRESS:PORT. Runs until it is killed.
"""

import signal
import sys
from pathlib import Path

from storage_cluster.servers import process
from storage_cluster.topology import Service
from testkit.loopback_store import LoopbackStore
from testkit.s3_stores import start_rgw


class PublicGateway(LoopbackStore):
    """A store on loopback whose gateway is at another address."""

    def __init__(self, root: Path, address: str, port: int) -> None:
        self._place = address, port
        super().__init__(root, ())

    def bind(self, service: str, host: str) -> Service:
        """As of any store, but of the gateway."""
        if service != "s3":
            return super().bind(service, host)
        gateway = Service(service, host, *self._place)
        self._sockets[host, service] = process.bind(gateway)
        return gateway


def main(kind: str, folder: str, address: str, port: str) -> None:
    """Run until killed."""
    root = Path(folder)
    with PublicGateway(root, address, int(port)) if kind == "ours" else start_rgw(root, f"{address}:{port}"):
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
