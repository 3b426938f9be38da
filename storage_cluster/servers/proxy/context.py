"""Shared by the parts of a proxy: the storage servers, the clock, cached information on accounts and containers."""

import dataclasses

from storage_cluster.servers.http.backend import Backend
from storage_cluster.servers.http.messages import Call, Handler, Refusal, Reply
from storage_cluster.servers.http.times import TimestampMaker
from storage_cluster.servers.proxy.infos import Infos
from storage_cluster.servers.proxy.replicas import Replicas


async def _not_assembled(_: Call) -> Reply:
    raise Refusal(503)


@dataclasses.dataclass
class ProxyContext:
    """Made once for a proxy process."""

    backend: Backend
    replicas: Replicas
    clock: TimestampMaker
    infos: Infos
    whole: Handler = _not_assembled
    """The entire pipeline, from its outermost middleware on; set when it is put together."""

    @classmethod
    def over(cls, backend: Backend, info_cache_s: float | None = None) -> "ProxyContext":
        """The parts of a proxy that sends its requests with this backend."""
        replicas = Replicas(backend)
        remember_s = backend.topology.proxy_info_cache_s if info_cache_s is None else info_cache_s
        return cls(backend, replicas, TimestampMaker(), Infos(replicas, remember_s))
