"""Word from one server to the next one up: objects to their container, containers to their account.

The proxy tells each storage server which replica of the parent it shall inform, in three headers (`X-Container-Host`,
`-Partition`, `-Device`, and the same with `Account`), so that three servers inform three replicas. What cannot be said
is kept and said later, so a listing that missed something while its server was down catches up.

Source: Swift, object server's `container_update` and `async_update`, container server's `account_update`.
"""

import dataclasses
import json
import os
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

from storage_cluster.servers.backend import Backend, device_path
from storage_cluster.servers.times import new_transaction_id
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

    async def tell(self, backend: Backend, update: "Update", transaction_id: str) -> bool:
        """Send the word; whether it was taken."""
        service = Service(self.kind.lower(), "", self.address, self.port)
        path = device_path(Device("", self.device, 0), self.partition, *update.names)
        answer = await backend.request(service, update.method, path, {**update.headers, "X-Trans-Id": transaction_id})
        return answer.succeeded or answer.status == HTTPStatus.NOT_FOUND  # its container is gone: nothing to tell


@dataclasses.dataclass(frozen=True)
class Update:
    """What there is to say."""

    method: str
    names: tuple[str, ...]
    headers: Mapping[str, str]


class PendingUpdates:
    """Words that did not arrive, kept on the device until they do: one JSON file each in `async_pending`."""

    def __init__(self, device_dir: Path) -> None:
        self._dir = device_dir / "async_pending"

    def add(self, parent: Parent, update: Update) -> None:
        """Keep one."""
        self._dir.mkdir(exist_ok=True)
        kept = self._dir / f"{uuid.uuid4().hex}.json"
        draft = kept.with_suffix(".tmp")
        with open(draft, "w", encoding="utf-8") as file:
            json.dump({"parent": dataclasses.asdict(parent), "update": dataclasses.asdict(update)}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(kept)

    async def retry(self, backend: Backend) -> None:
        """Send what is kept, and forget what was taken."""
        for kept in sorted(self._dir.glob("*.json")):
            found = json.loads(kept.read_text("utf-8"))
            parent = Parent(**found["parent"])
            update = Update(**(found["update"] | {"names": tuple(found["update"]["names"])}))
            if await parent.tell(backend, update, new_transaction_id()):
                kept.unlink()
