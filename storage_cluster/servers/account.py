"""The account server: which containers an account has, kept in SQLite.

`PUT|POST|HEAD|GET /device/partition/account` from the proxy; `PUT /device/partition/account/container` from container
servers, which report that a container was made, deleted or has changed its counts.
"""

from storage_cluster.servers import database, listings
from storage_cluster.servers.account_db import AccountDatabase, AccountStat, ContainerRow
from storage_cluster.servers.messages import Call, Refusal, Reply, reply
from storage_cluster.servers.storage import Devices, Target, metadata_headers, present, timestamp_of

PATH_SEGMENT_COUNT = 4
METADATA_PREFIXES = ("x-account-meta-", "x-account-sysmeta-")


class AccountServer:
    """Answers for the accounts on this host's devices."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._databases = database.Opened(AccountDatabase, AccountDatabase.close)

    def close(self) -> None:
        """Close the databases."""
        self._databases.close()

    async def handle(self, call: Call) -> Reply:
        """One call."""
        target = self._devices.target(call, 1)
        if len(target.names) == 2 and call.method == "PUT":
            return self._put_container(call, target)
        if len(target.names) == 2:
            raise Refusal(405)
        if call.method == "PUT":
            return self._put(call, target)
        if call.method == "POST":
            return self._post(call, target)
        if call.method in ("GET", "HEAD"):
            return self._show(call, target)
        raise Refusal(405)

    def _open(self, target: Target, *, create: bool = False) -> AccountDatabase:
        directory = database.hash_dir(target.device_dir, "accounts", target.partition, target.hash)
        found = self._databases.get(directory / f"{target.hash}.db", create=create)
        if found is None or not (create or found.stat().exists):
            raise Refusal(404)
        return found

    def _put(self, call: Call, target: Target) -> Reply:
        account = self._open(target, create=True)
        existed = account.stat().exists
        account.put(timestamp_of(call), metadata_headers(call.headers, METADATA_PREFIXES))
        return reply(202 if existed else 201)

    def _post(self, call: Call, target: Target) -> Reply:
        account = self._open(target)
        account.put(timestamp_of(call), metadata_headers(call.headers, METADATA_PREFIXES))
        return reply(204)

    def _put_container(self, call: Call, target: Target) -> Reply:
        headers = call.headers
        self._open(target).merge_container(
            ContainerRow(
                name=target.names[1],
                put_timestamp=headers.get("X-Put-Timestamp", "0"),
                delete_timestamp=headers.get("X-Delete-Timestamp", "0"),
                object_count=int(headers.get("X-Object-Count", "0")),
                bytes_used=int(headers.get("X-Bytes-Used", "0")),
            )
        )
        return reply(201)

    def _show(self, call: Call, target: Target) -> Reply:
        account = self._open(target)
        headers = _stat_headers(account.stat())
        if call.method == "HEAD":
            return reply(204, headers)
        query = listings.parse_query(call.query, call.headers.get("Accept", ""))
        headers["Content-Type"], body = listings.render(listings.select(query, account.entries), query)
        return reply(200 if body and body != b"[]" else 204 if not query.as_json else 200, headers, body)


def _stat_headers(stat: AccountStat) -> dict[str, str]:
    return {
        "X-Account-Container-Count": str(stat.container_count),
        "X-Account-Object-Count": str(stat.object_count),
        "X-Account-Bytes-Used": str(stat.bytes_used),
        "X-Timestamp": stat.put_timestamp,
        **present(stat.metadata),
    }
