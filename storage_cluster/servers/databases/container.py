"""The container server: stores the list of a container's objects in SQLite.

`PUT|POST|HEAD|GET|DELETE /device/partition/account/container` from the proxy; `PUT|DELETE …/container/object` from
object servers. It reports the creation and deletion of a container to the account servers before it answers; the
container updater reports the counts a little later, once for many changes.
"""

from storage_cluster.policies import POLICY_DEFAULT, POLICY_INDEX
from storage_cluster.servers.databases.container_db import ContainerDatabase, ContainerStat, ObjectRow
from storage_cluster.servers.databases.database_server import DatabaseServer
from storage_cluster.servers.databases.updates import Parent, Update, report_headers
from storage_cluster.servers.disks.devices import (
    Devices,
    Target,
    metadata_as_headers,
    metadata_headers,
    timestamp_of,
)
from storage_cluster.servers.http import listings
from storage_cluster.servers.http.backend import Backend
from storage_cluster.servers.http.messages import Call, Refusal, Reply, reply
from storage_cluster.servers.http.times import TimestampMaker, http_date

PATH_SEGMENT_COUNT = 5
METADATA_PREFIXES = (
    "x-container-meta-",
    "x-container-sysmeta-",
    "x-container-read",
    "x-container-write",
    "x-container-sync-key",
    "x-container-sync-to",
)


class ContainerServer(DatabaseServer[ContainerDatabase]):
    """Answers for the containers on this host's devices."""

    def __init__(self, devices: Devices, backend: Backend) -> None:
        super().__init__("containers", 2, ContainerDatabase, devices)
        self._backend = backend
        self._clock = TimestampMaker()

    async def _handle(self, call: Call, target: Target) -> Reply:
        if len(target.names) == 3:
            return self._merge_object(call, target)
        if call.method == "PUT":
            return await self._put(call, target)
        if call.method == "DELETE":
            return await self._delete(call, target)
        if call.method == "POST":
            return self._post(call, target)
        if call.method in ("GET", "HEAD"):
            return self._show(call, target)
        raise Refusal(405)

    async def _put(self, call: Call, target: Target) -> Reply:
        container = self._open(target, create=True)
        before = container.stat()
        asked = call.headers.get(POLICY_INDEX)
        if before.exists and asked not in (None, str(before.policy_index)):
            raise Refusal(409, headers={POLICY_INDEX: str(before.policy_index)})
        policy_index = None if before.exists else int(asked or call.headers.get(POLICY_DEFAULT) or 0)
        container.put(timestamp_of(call), metadata_headers(call.headers, METADATA_PREFIXES), policy_index)
        await self._report_to_account(call, target, container.stat())
        return reply(202 if before.exists else 201)

    async def _delete(self, call: Call, target: Target) -> Reply:
        container = self._open(target)
        if container.stat().object_count:
            raise Refusal(409)
        container.delete(timestamp_of(call))
        await self._report_to_account(call, target, container.stat())
        return reply(204)

    def _post(self, call: Call, target: Target) -> Reply:
        container = self._open(target)
        container.put(timestamp_of(call), metadata_headers(call.headers, METADATA_PREFIXES))
        return reply(204)

    def _merge_object(self, call: Call, target: Target) -> Reply:
        if call.method not in ("PUT", "DELETE"):
            raise Refusal(405)
        headers = call.headers
        deleted = call.method == "DELETE"
        self._open_or_make_own(call, target).merge_object(
            ObjectRow(
                name=target.names[2],
                timestamp=timestamp_of(call),
                size=0 if deleted else int(headers["X-Size"]),
                content_type=headers.get("X-Content-Type", ""),
                etag=headers.get("X-Etag", ""),
                deleted=deleted,
            )
        )
        return reply(204 if deleted else 201)

    def _show(self, call: Call, target: Target) -> Reply:
        container = self._open(target)
        headers = _stat_headers(container.stat())
        if call.method == "HEAD":
            return reply(204, headers)
        entries = listings.select(listings.parse_query(call.query), container.entries)
        return reply(200, headers, listings.render(entries))

    async def _report_to_account(self, call: Call, target: Target, stat: ContainerStat) -> None:
        report = Update("PUT", target.names, report_headers(stat, self._clock.now()))
        for parent in Parent.all_named_in(call.headers, "Account"):  # if not now, the container updater delivers it
            await parent.send(self._backend, report, call.transaction_id)


def _stat_headers(stat: ContainerStat) -> dict[str, str]:
    return {
        "X-Container-Object-Count": str(stat.object_count),
        "X-Container-Bytes-Used": str(stat.bytes_used),
        "Content-Type": "application/json; charset=utf-8",
        "X-Timestamp": stat.created_timestamp,
        "Last-Modified": http_date(stat.put_timestamp),
        POLICY_INDEX: str(stat.policy_index),
        **metadata_as_headers(stat.metadata),
    }
