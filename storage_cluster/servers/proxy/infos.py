"""Information on an account or a container that a request needs before it can be carried out.

Asked with a HEAD; the container after its account, as in Swift: figure 1 of the paper, steps 6 to 9. The answer is
remembered in `Call.shared` by the request and all calls derived from it, and, where it exists, by this proxy for
`intervals.info_cache_s`, as Swift's proxies do with memcache; what the proxy itself changes it forgets. Of several
proxies none knows what another changed, so there it is a second (`[proxy] info_cache_s`). Counts may be as old as that,
so who decides by them asks for fresh ones.

Source: Swift, swift.proxy.controllers.base (`get_account_info`, `get_container_info`).
"""

import collections
import dataclasses
import time
from collections.abc import Mapping
from typing import TypeVar

from multidict import CIMultiDict, CIMultiDictProxy

from storage_cluster.policies import POLICY_INDEX
from storage_cluster.servers.http.messages import Call, Refusal
from storage_cluster.servers.proxy.replicas import Replicas

_NO_HEADERS: CIMultiDictProxy[str] = CIMultiDictProxy(CIMultiDict())


_REMEMBERED_MAX = 10_000


@dataclasses.dataclass(frozen=True)
class Info:
    """The result of a HEAD: status and headers, including sysmeta."""

    status: int
    headers: Mapping[str, str] = dataclasses.field(default_factory=lambda: _NO_HEADERS)

    @property
    def exists(self) -> bool:
        """Whether the account or container exists."""
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
        """The list of who may read, besides the owner."""
        return self.headers.get("X-Container-Read")

    @property
    def write_acl(self) -> str | None:
        """The list of who may write, besides the owner."""
        return self.headers.get("X-Container-Write")

    @property
    def policy_index(self) -> int:
        """The storage policy of its objects."""
        return int(self.headers.get(POLICY_INDEX, "0"))

    @property
    def object_count(self) -> int:
        """Number of its objects."""
        return int(self.headers.get("X-Container-Object-Count", "0"))

    @property
    def bytes_used(self) -> int:
        """Bytes in them."""
        return int(self.headers.get("X-Container-Bytes-Used", "0"))


I = TypeVar("I", bound=Info)  # noqa: E741


class Infos:
    """Fetches information and caches it for the request; of what exists, for a while for other requests, too."""

    def __init__(self, replicas: Replicas, remember_s: float) -> None:
        self._replicas = replicas
        self._remember_s = remember_s
        self._remembered: collections.OrderedDict[tuple[str, ...], tuple[Info, float]] = collections.OrderedDict()
        self._changes = 0  # an answer that was on its way while something changed is not remembered

    async def account(self, call: Call, account: str, *, fresh: bool = False) -> AccountInfo:
        """An account's; status 404 if it does not exist, 503 if nobody knows. `fresh`: not older than the request."""
        known = self._lookup(call, (account,), fresh=fresh)
        if not isinstance(known, AccountInfo):
            known = await self._fetch(call, (account,), AccountInfo)
        return known

    async def container(self, call: Call, account: str, container: str, *, fresh: bool = False) -> ContainerInfo:
        """A container's; 404 also if its account does not exist. `fresh`: not older than the request."""
        names = (account, container)
        known = self._lookup(call, names, fresh=fresh)
        if not isinstance(known, ContainerInfo):
            of_account = await self.account(call, account)
            if not of_account.exists:
                known = call.shared.infos[names] = ContainerInfo(of_account.status)
            else:
                known = await self._fetch(call, names, ContainerInfo)
        return known

    def forget(self, call: Call, *names: str) -> None:
        """Drop the cached information of an account or container that is being changed, or has just been."""
        call.shared.infos.pop(names, None)
        self._remembered.pop(names, None)
        self._changes += 1

    def _lookup(self, call: Call, names: tuple[str, ...], *, fresh: bool) -> object:
        known = call.shared.infos.get(names)
        if known is None and not fresh and names in self._remembered:
            info, until_s = self._remembered[names]
            if until_s > time.monotonic():
                return info
        return known

    async def _fetch(self, call: Call, names: tuple[str, ...], kind: type[I]) -> I:
        changes = self._changes
        found = await self._replicas.first(names, "HEAD", {"X-Trans-Id": call.transaction_id})
        info = kind(found.status, found.headers)
        call.shared.infos[names] = info
        if info.exists and changes == self._changes:
            self._remembered[names] = info, time.monotonic() + self._remember_s
            self._remembered.move_to_end(names)
            if len(self._remembered) > _REMEMBERED_MAX:
                self._remembered.popitem(last=False)
        return info


def require(info: Info) -> None:
    """Raises: Refusal (404, 503) unless it exists."""
    if not info.exists:
        raise Refusal(info.status)
