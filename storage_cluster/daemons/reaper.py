"""The reaper: empties accounts that were deleted, object by object, container by container.

The host of an account's first primary does it. What cannot be deleted now is found again in the next pass. The
account's database stays, marked as deleted, until the account replicator forgets it.

Source: Swift, swift.account.reaper.
"""

from collections import Counter

from storage_cluster.daemons.daemon import DaemonContext, counts_text
from storage_cluster.daemons.database_replicator import places
from storage_cluster.daemons.internal import InternalClient
from storage_cluster.servers.databases.account_db import AccountDatabase
from storage_cluster.servers.databases.replicated_db import peek
from storage_cluster.servers.http.listings import Names

_CONTAINERS_MAX = 1000
"""Containers of one account in one pass."""


class Reaper:
    """Deletes the contents of this host's deleted accounts."""

    def __init__(self, context: DaemonContext) -> None:
        self._context = context
        self._client = InternalClient.over(context.backend)

    async def run_once(self) -> str:
        """One pass over all accounts."""
        counts: Counter[str] = Counter()
        ring = self._context.backend.rings["account"]
        for place in places(self._context, "account"):
            if place.partition >= ring.partition_count:
                continue
            first = ring.primaries(place.partition)[0]
            if (first.host, first.name) == (self._context.host, place.device):
                for account, container in peek(AccountDatabase, place.file, _remaining_containers) or ():
                    await self._reap(account, container, counts)
        return counts_text(counts)

    async def _reap(self, account: str, container: str, counts: Counter[str]) -> None:
        async for name in self._client.names_in(account, container):
            answer = await self._client.delete_object((account, container, name), {})
            counts["objects reaped"] += answer.is_success
        answer = await self._client.delete_container((account, container))
        counts["containers reaped"] += answer.is_success


def _remaining_containers(database: AccountDatabase) -> list[tuple[str, str]]:
    """The containers (account, name) that a deleted account still has."""
    state = database.state()
    if not (state.is_deleted and state.names):
        return []
    entries = database.entries(Names("", True, "", _CONTAINERS_MAX), reserved=True)
    return [(state.names[0], entry.name) for entry in entries]
