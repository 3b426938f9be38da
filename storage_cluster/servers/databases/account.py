"""The account server: stores the list of an account's containers in SQLite.

`PUT|POST|DELETE|HEAD|GET /device/partition/account` from the proxy; `PUT /device/partition/account/container` from
container servers, which report that a container was made, deleted or has changed its counts.
"""

from storage_cluster.policies import Policies
from storage_cluster.servers.databases.account_db import AccountDatabase, AccountStat, ContainerRow
from storage_cluster.servers.databases.database_server import DatabaseServer
from storage_cluster.servers.disks.devices import (
    Devices,
    Target,
    metadata_as_headers,
    metadata_headers,
    policy_of,
    timestamp_of,
)
from storage_cluster.servers.http import listings
from storage_cluster.servers.http.messages import Call, Refusal, Reply, reply

PATH_SEGMENT_COUNT = 4
METADATA_PREFIXES = ("x-account-meta-", "x-account-sysmeta-")
_DELETED = {"X-Account-Status": "Deleted"}


class AccountServer(DatabaseServer[AccountDatabase]):
    """Answers for the accounts on this host's devices."""

    def __init__(self, devices: Devices) -> None:
        super().__init__("accounts", 1, AccountDatabase, devices)
        self._policies = devices.policies

    async def _handle(self, call: Call, target: Target) -> Reply:
        if len(target.names) == 2 and call.method == "PUT":
            return self._put_container(call, target)
        if len(target.names) == 2:
            raise Refusal(405)
        if call.method == "PUT":
            return self._put(call, target)
        if call.method == "POST":
            return self._post(call, target)
        if call.method == "DELETE":
            return self._delete(call, target)
        if call.method in ("GET", "HEAD"):
            return self._show(call, target)
        raise Refusal(405)

    def _open(self, target: Target, *, create: bool = False) -> AccountDatabase:
        found = self._database(target, create=create)
        if found is not None and found.stat().is_deleted:
            raise Refusal(403 if create else 404, "Recently deleted" if create else "", _DELETED)
        return super()._open(target, create=create)

    def _put(self, call: Call, target: Target) -> Reply:
        account = self._open(target, create=True)
        existed = account.stat().exists
        account.put(timestamp_of(call), metadata_headers(call.headers, METADATA_PREFIXES))
        return reply(202 if existed else 201)

    def _post(self, call: Call, target: Target) -> Reply:
        account = self._open(target)
        account.put(timestamp_of(call), metadata_headers(call.headers, METADATA_PREFIXES))
        return reply(204)

    def _delete(self, call: Call, target: Target) -> Reply:
        self._open(target).delete(timestamp_of(call))
        return reply(204, _DELETED)

    def _put_container(self, call: Call, target: Target) -> Reply:
        headers = call.headers
        own = target.names[0].startswith(".")  # an account of the cluster itself is made by its first container
        account = self._open(target, create=own)
        if own and not account.stat().exists:
            account.put(headers.get("X-Put-Timestamp", "0"), {})
        account.merge_container(
            ContainerRow(
                name=target.names[1],
                put_timestamp=headers.get("X-Put-Timestamp", "0"),
                delete_timestamp=headers.get("X-Delete-Timestamp", "0"),
                object_count=int(headers.get("X-Object-Count", "0")),
                bytes_used=int(headers.get("X-Bytes-Used", "0")),
                reported_timestamp=headers.get("X-Timestamp", "0"),
                policy_index=policy_of(call),
            )
        )
        return reply(201)

    def _show(self, call: Call, target: Target) -> Reply:
        account = self._open(target)
        headers = _stat_headers(account.stat(), self._policies)
        if call.method == "HEAD":
            return reply(204, headers)
        return reply(200, headers, listings.render(listings.select(listings.parse_query(call.query), account.entries)))


def _stat_headers(stat: AccountStat, policies: Policies) -> dict[str, str]:
    counts = {"X-Account": (stat.container_count, stat.object_count, stat.bytes_used)}
    for index, of_policy in stat.by_policy.items():
        policy = policies.at(index)
        if policy is not None:
            counts[f"X-Account-Storage-Policy-{policy.name.title()}"] = of_policy
    return {
        "Content-Type": "application/json; charset=utf-8",
        **{
            f"{head}-{name}": str(count)
            for head, three in counts.items()
            for name, count in zip(("Container-Count", "Object-Count", "Bytes-Used"), three, strict=True)
        },
        "X-Timestamp": stat.created_timestamp,
        **metadata_as_headers(stat.metadata),
    }
