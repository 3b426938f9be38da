"""The expirer: deletes expired objects, and removes them from the queue (see `servers.object.expiry`).

The hosts share the work by the MD5 of an entry's name. A deletion says which moment it means (`X-If-Delete-At`), so
that an object that was given another one meanwhile stays (412). An entry goes when its object has: an entry whose
object nobody knows (404) may be about one that is still on its way, so it stays for `reclaim_age_s`.

Source: Swift, swift.obj.expirer.
"""

import time
from collections import Counter

from storage_cluster.daemons.daemon import DaemonContext, counts_text
from storage_cluster.daemons.internal import InternalClient
from storage_cluster.ring import path_hash
from storage_cluster.servers.object.expiry import QUEUE_ACCOUNT, timestamp_text

_NOT_THAT_MOMENT = 412


class Expirer:
    """Processes this host's share of the queue."""

    def __init__(self, context: DaemonContext) -> None:
        self._context = context
        self._client = InternalClient.over(context.backend)
        hosts = [host.name for host in context.backend.topology.hosts if host.devices]
        self._share = (hosts.index(context.host), len(hosts))

    async def run_once(self) -> str:
        """One pass over all entries that are due."""
        counts: Counter[str] = Counter()
        due = timestamp_text(int(time.time()) + 1)
        async for container in self._client.names_in(QUEUE_ACCOUNT, end_marker=due):
            async for entry in self._client.names_in(QUEUE_ACCOUNT, container, end_marker=due):
                if self._is_ours(entry) and await self._expire(container, entry):
                    counts["objects expired"] += 1
            if self._is_ours(container) and int(container) + 2 * 86_400 < time.time():
                await self._client.delete_container((QUEUE_ACCOUNT, container))  # 409 while anything is in it
        return counts_text(counts)

    async def _expire(self, container: str, entry: str) -> bool:
        moment, _, path = entry.partition("-")
        names = path.split("/", 2)
        if len(names) != 3 or not moment.isdigit():
            return False
        account, holder, name = names
        answer = await self._client.delete_object((account, holder, name), {"X-If-Delete-At": moment})
        late_s = time.time() - int(moment)
        over = answer.status == 404 and late_s > self._context.intervals.reclaim_age_s
        if not (answer.is_success or answer.status == _NOT_THAT_MOMENT or over):
            return False
        await self._client.delete_row((QUEUE_ACCOUNT, container, entry))
        return answer.is_success

    def _is_ours(self, name: str) -> bool:
        index, count = self._share
        return int(path_hash((name,), ""), 16) % count == index
