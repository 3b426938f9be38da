"""Lists names and deletes all replicas for the expirer and the reaper, as the proxy does for clients."""

import dataclasses
import json
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from urllib.parse import urlencode

from storage_cluster.policies import POLICY_INDEX
from storage_cluster.servers.databases.updates import Parent
from storage_cluster.servers.http.backend import Backend, BackendAnswer, device_path
from storage_cluster.servers.http.times import TimestampMaker, new_transaction_id
from storage_cluster.servers.proxy.objects import container_headers
from storage_cluster.servers.proxy.replicas import Replicas

LISTING_LIMIT = 1000


@dataclasses.dataclass(frozen=True)
class InternalClient:
    """Requests straight to the storage servers, each with a transaction id of its own."""

    backend: Backend
    replicas: Replicas
    clock: TimestampMaker

    @classmethod
    def over(cls, backend: Backend) -> "InternalClient":
        """A client that sends its requests through this backend."""
        return cls(backend, Replicas(backend), TimestampMaker())

    async def names_in(self, *names: str, end_marker: str = "") -> AsyncIterator[str]:
        """The names in an account or a container, up to a given name; none if it does not exist."""
        marker = ""
        while True:
            query = {"format": "json", "limit": str(LISTING_LIMIT), "marker": marker, "end_marker": end_marker}
            entries = await self._listing(names, "?" + urlencode(query))
            for entry in entries:
                yield entry["name"]
            if len(entries) < LISTING_LIMIT:
                return
            marker = entries[-1]["name"]

    async def _listing(self, names: tuple[str, ...], query: str) -> list[dict[str, str]]:
        """One page of a listing; empty if a majority of the primaries have none, or no primary answers."""
        service_name, partition, ring = self.replicas.placement(*names)
        absent_count = 0
        for device in ring.primaries(partition):
            path = device_path(device, partition, *names) + query
            headers = {"X-Trans-Id": new_transaction_id()}
            answer = await self.backend.request(self.backend.service(service_name, device), "GET", path, headers)
            if answer.status == HTTPStatus.OK:
                found: list[dict[str, str]] = json.loads(answer.body)
                return found
            absent_count += answer.status == HTTPStatus.NOT_FOUND
            if absent_count >= self.replicas.quorum:
                break
        return []

    async def delete_object(self, names: tuple[str, str, str], headers: Mapping[str, str]) -> BackendAnswer:
        """Delete an object on all its replicas, which update the container."""
        policy = await self._policy_of(names[:2])
        common = self._with_time({**headers, **self.replicas.policy_headers(policy)})
        per_replica = [common | parents for parents in container_headers(self.replicas, names, policy)]
        return await self.replicas.change(names, "DELETE", per_replica.__getitem__, policy)

    async def _policy_of(self, container: tuple[str, str]) -> int:
        """The storage policy of a container; where there are several, its servers are asked."""
        if len(self.backend.topology.policies) == 1:
            return 0
        found = await self.replicas.first(container, "HEAD", {"X-Trans-Id": new_transaction_id()})
        return int(found.headers.get(POLICY_INDEX, "0"))

    async def delete_container(self, names: tuple[str, str]) -> BackendAnswer:
        """Delete a container on all its replicas, which update the account."""
        ring = self.backend.rings["account"]
        partition = ring.partition(names[0])
        parents = [Parent.on_device("Account", self.backend, device, partition) for device in ring.primaries(partition)]
        common = self._with_time({})
        return await self.replicas.change(names, "DELETE", lambda index: common | parents[index].headers)

    async def delete_row(self, names: tuple[str, str, str]) -> bool:
        """Remove an object's name from a container's replicas; returns whether all of them accepted."""
        ring = self.backend.rings["container"]
        partition = ring.partition(*names[:2])
        headers = {"X-Timestamp": self.clock.now(), "X-Trans-Id": new_transaction_id()}
        statuses = []
        for device in ring.primaries(partition):
            path = device_path(device, partition, *names)
            answer = await self.backend.request(self.backend.service("container", device), "DELETE", path, headers)
            statuses.append(answer.status)
        return all(status == HTTPStatus.NOT_FOUND or 200 <= status < 300 for status in statuses)

    def _with_time(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {**headers, "X-Timestamp": self.clock.now(), "X-Trans-Id": new_transaction_id()}
