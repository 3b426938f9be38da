"""Word from one server to the next one up: objects to their container, containers to their account.

The proxy tells each storage server which replica of the parent it shall inform, in three headers (`X-Container-Host`,
`-Partition`, `-Device`, and the same with `Account`), so that three servers inform three replicas.

Source: Swift, object server's `container_update` and container server's `account_update`.
"""

import dataclasses
from collections.abc import Mapping

from storage_cluster.servers.backend import Backend, device_path
from storage_cluster.topology import Device, Service


@dataclasses.dataclass(frozen=True)
class Parent:
    """One replica of the container or account that is to hear of a change."""

    kind: str  # "Container" or "Account", as in the headers' names
    address: str
    port: int
    partition: int
    device: str

    @classmethod
    def on_device(cls, kind: str, backend: Backend, device: Device, partition: int) -> "Parent":
        """The replica on a device."""
        service = backend.service(kind.lower(), device)
        return cls(kind, service.address, service.port, partition, device.name)

    @classmethod
    def named_in(cls, headers: Mapping[str, str], kind: str) -> "Parent | None":
        """The replica that a request names; None if it names none."""
        host, port = headers.get(f"X-{kind}-Host", "").rpartition(":")[::2]
        partition, device = headers.get(f"X-{kind}-Partition", ""), headers.get(f"X-{kind}-Device", "")
        if not (host and port.isdigit() and partition.isdigit() and device):
            return None
        return cls(kind, host, int(port), int(partition), device)

    @property
    def headers(self) -> dict[str, str]:
        """How a request names it."""
        return {
            f"X-{self.kind}-Host": f"{self.address}:{self.port}",
            f"X-{self.kind}-Partition": str(self.partition),
            f"X-{self.kind}-Device": self.device,
        }

    async def tell(
        self, backend: Backend, method: str, names: tuple[str, ...], headers: Mapping[str, str], transaction_id: str
    ) -> bool:
        """Send the word; whether it was taken."""
        service = Service(self.kind.lower(), "", self.address, self.port)
        path = device_path(Device("", self.device, 0), self.partition, *names)
        answer = await backend.request(service, method, path, {**headers, "X-Trans-Id": transaction_id})
        return answer.succeeded
