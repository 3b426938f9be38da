"""What a request needs to know about an account or a container before it can be carried out.

Asked once for each client request, with a HEAD, and remembered in `Call.shared` by it and all calls derived from it.
A container is asked about after its account, as in Swift: figure 1 of the paper, steps 6 to 9.

Source: Swift, swift.proxy.controllers.base (`get_account_info`, `get_container_info`).
"""

import dataclasses
from collections.abc import Mapping

from multidict import CIMultiDict, CIMultiDictProxy

from storage_cluster.servers.messages import Call, Refusal
from storage_cluster.servers.proxy.replicas import Replicas

_NO_HEADERS: CIMultiDictProxy[str] = CIMultiDictProxy(CIMultiDict())


@dataclasses.dataclass(frozen=True)
class Info:
    """What a HEAD said: status and headers, sysmeta included."""

    status: int
    headers: Mapping[str, str] = dataclasses.field(default_factory=lambda: _NO_HEADERS)

    @property
    def exists(self) -> bool:
        """Whether it is there."""
        return 200 <= self.status < 300

    def meta(self, kind: str, name: str) -> str | None:
        """A metadata value: `meta("container", "quota-bytes")`."""
        return self.headers.get(f"X-{kind}-Meta-{name}")

    def sysmeta(self, kind: str, name: str) -> str | None:
        """A value that only the servers themselves set."""
        return self.headers.get(f"X-{kind}-Sysmeta-{name}")


@dataclasses.dataclass(frozen=True)
class AccountInfo(Info):
    """An account's."""

    @property
    def bytes_used(self) -> int:
        """Bytes in all its objects, as last reported."""
        return int(self.headers.get("X-Account-Bytes-Used", "0"))


@dataclasses.dataclass(frozen=True)
class ContainerInfo(Info):
    """A container's."""

    @property
    def read_acl(self) -> str | None:
        """Who may read, besides the owner."""
        return self.headers.get("X-Container-Read")

    @property
    def write_acl(self) -> str | None:
        """Who may write, besides the owner."""
        return self.headers.get("X-Container-Write")

    @property
    def object_count(self) -> int:
        """Its objects."""
        return int(self.headers.get("X-Container-Object-Count", "0"))

    @property
    def bytes_used(self) -> int:
        """Bytes in them."""
        return int(self.headers.get("X-Container-Bytes-Used", "0"))


class Infos:
    """Asks, and remembers for the duration of a request."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    async def account(self, call: Call, account: str) -> AccountInfo:
        """An account's; status 404 if it does not exist, 503 if nobody knows."""
        known = call.shared.infos.get((account,))
        if not isinstance(known, AccountInfo):
            known = AccountInfo(*await self._head(call, (account,)))
            call.shared.infos[account,] = known
        return known

    async def container(self, call: Call, account: str, container: str) -> ContainerInfo:
        """A container's; 404 also if its account does not exist."""
        names = (account, container)
        known = call.shared.infos.get(names)
        if not isinstance(known, ContainerInfo):
            of_account = await self.account(call, account)
            found = await self._head(call, names) if of_account.exists else (of_account.status, _NO_HEADERS)
            known = call.shared.infos[names] = ContainerInfo(*found)
        return known

    def forget(self, call: Call, *names: str) -> None:
        """Ask again the next time: this account or container has just been changed."""
        call.shared.infos.pop(names, None)

    async def _head(self, call: Call, names: tuple[str, ...]) -> tuple[int, Mapping[str, str]]:
        found = await self._replicas.first(names, "HEAD", {"X-Trans-Id": call.transaction_id})
        return found.status, found.headers


def required(info: Info) -> None:
    """Raises: Refusal (404, 503) unless it exists."""
    if not info.exists:
        raise Refusal(info.status)
