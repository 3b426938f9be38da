"""Delivers updates to the parent's server: from objects to their container, from containers to their account.

The proxy assigns to each storage server the replica of the parent that it has to update, in three headers
(`X-Container-Host`, `-Partition`, `-Device`, and the same with `Account`), so that three servers update three replicas.
An update that cannot be delivered is kept and delivered later, so a listing catches up after its server was down.

Source: Swift, object server's `container_update` and `async_update`, container server's `account_update`.
"""

import contextlib
import dataclasses
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path

from storage_cluster.policies import POLICY_INDEX
from storage_cluster.servers.databases.container_db import ContainerStat
from storage_cluster.servers.http.backend import Backend, device_path
from storage_cluster.topology import Device, Service


@dataclasses.dataclass(frozen=True)
class Parent:
    """One replica of the container or account to which a change is to be reported."""

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
    def all_named_in(cls, headers: Mapping[str, str], kind: str) -> "list[Parent]":
        """The replicas that a request names."""
        partition = headers.get(f"X-{kind}-Partition", "")
        hosts, devices = (headers.get(f"X-{kind}-{name}", "").split(",") for name in ("Host", "Device"))
        found = []
        for place, device in zip(hosts, devices, strict=False):
            host, _, port = place.rpartition(":")
            if host and port.isdigit() and partition.isdigit() and device:
                found.append(cls(kind, host, int(port), int(partition), device))
        return found

    @property
    def headers(self) -> dict[str, str]:
        """The headers by which a request names the replica."""
        return {
            f"X-{self.kind}-Host": f"{self.address}:{self.port}",
            f"X-{self.kind}-Partition": str(self.partition),
            f"X-{self.kind}-Device": self.device,
        }

    async def send(self, backend: Backend, update: "Update", transaction_id: str) -> bool:
        """Send the update; True if it was accepted."""
        service = Service(self.kind.lower(), "", self.address, self.port)
        path = device_path(Device("", self.device, 0), self.partition, *update.names)
        answer = await backend.request(service, update.method, path, {**update.headers, "X-Trans-Id": transaction_id})
        return answer.is_success or answer.status == HTTPStatus.NOT_FOUND  # its container is gone: nothing to update


def joined_headers(parents: Sequence[Parent]) -> dict[str, str]:
    """The headers by which a request names several replicas, of one partition."""
    joined = parents[0].headers
    for name in (f"X-{parents[0].kind}-Host", f"X-{parents[0].kind}-Device"):
        joined[name] = ",".join(parent.headers[name] for parent in parents)
    return joined


@dataclasses.dataclass(frozen=True)
class Update:
    """One change to report to a parent: the method, path and headers of the request."""

    method: str
    names: tuple[str, ...]
    headers: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class UndeliveredUpdate:
    """An update that was not delivered, its file, and the request that it belongs to."""

    file: Path
    update: Update
    transaction_id: str


class PendingUpdates:
    """Updates that were not delivered, kept on the device until they are: one JSON file each in `async_pending`."""

    def __init__(self, device_dir: Path) -> None:
        self._dir = device_dir / "async_pending"

    def add(self, update: Update, transaction_id: str) -> None:
        """Store an update; when this returns, it survives a power cut."""
        self._dir.mkdir(exist_ok=True)
        kept = self._dir / f"{uuid.uuid4().hex}.json"
        draft = kept.with_suffix(".tmp")
        with open(draft, "w", encoding="utf-8") as file:
            json.dump({"update": dataclasses.asdict(update), "transaction_id": transaction_id}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(kept)

    def read(self) -> Iterator[UndeliveredUpdate]:
        """The stored updates that can be read."""
        for file in sorted(self._dir.glob("*.json")):
            with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
                found = json.loads(file.read_text("utf-8"))
                update = Update(**(found["update"] | {"names": tuple(found["update"]["names"])}))
                yield UndeliveredUpdate(file, update, found["transaction_id"])

    def remove_drafts(self) -> None:
        """Remove what a process that is gone had not finished writing."""
        for draft in self._dir.glob("*.tmp"):
            draft.unlink(missing_ok=True)


def report_headers(stat: ContainerStat, timestamp: str) -> dict[str, str]:
    """A container server's report to an account server; `timestamp` is when the counts held."""
    return {
        "X-Put-Timestamp": stat.put_timestamp,
        "X-Delete-Timestamp": stat.delete_timestamp,
        "X-Object-Count": str(stat.object_count),
        "X-Bytes-Used": str(stat.bytes_used),
        POLICY_INDEX: str(stat.policy_index),
        "X-Timestamp": timestamp,
    }
