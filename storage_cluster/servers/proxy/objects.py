"""Objects, as the proxy sees them.

The upload follows the paper's figure 1: is the account there (6, 7), is the container there (8, 9), then the object to
all its storage servers (10, 11), and the answer (12).
"""

from collections.abc import Mapping

from storage_cluster.servers.databases.updates import Parent, joined_headers
from storage_cluster.servers.disks.devices import metadata_headers
from storage_cluster.servers.http.backend import BackendAnswer
from storage_cluster.servers.http.messages import ACCESS, Call, Refusal, Reply, reply, usual_text
from storage_cluster.servers.http.times import http_date, just_after
from storage_cluster.servers.object.server import IF_TIMESTAMP, METADATA, REPLACED_UPLOAD
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.fragment_reading import FragmentReader, without_archive
from storage_cluster.servers.proxy.fragment_upload import FragmentUpload
from storage_cluster.servers.proxy.infos import require
from storage_cluster.servers.proxy.object_reading import ObjectReader
from storage_cluster.servers.proxy.object_rules import check_post, check_put
from storage_cluster.servers.proxy.replicas import Replicas, best_answer
from storage_cluster.servers.proxy.upload import Upload

ONLY_AT = "X-Backend-Only-At"
"""With a DELETE from within: delete only what was last changed at this moment; what is newer stays."""
METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE")
TRAILER = "X-Object-Sysmeta-S3-Checksum"
"""The header that is announced to come after a body."""
_ALLOWED = "POST, PUT, GET, HEAD, DELETE, OPTIONS"

Names = tuple[str, str, str]


class Objects:
    """Reads and changes objects."""

    def __init__(self, context: ProxyContext) -> None:
        self._replicas = context.replicas
        self._clock = context.clock
        self._infos = context.infos

    async def handle(self, call: Call, names: Names) -> Reply:
        """One call about an object."""
        if call.method not in METHODS:
            raise Refusal(405, headers={"Allow": _ALLOWED})
        container = await self._infos.container(call, *names[:2])
        await call.check_access(container.read_acl if call.method in ("GET", "HEAD") else container.write_acl)
        require(container)
        policy = container.policy_index
        if call.method in ("GET", "HEAD"):
            return await self._reader(policy).read(call, names)
        if call.method == "PUT":
            return await self._put(call, names, policy)
        if call.method == "POST":
            return await self._post(call, names, policy)
        return await self._change(call, names, {}, policy)

    def _reader(self, policy: int) -> ObjectReader:
        code = self._replicas.code(policy)
        return ObjectReader(self._replicas, policy) if code is None else FragmentReader(self._replicas, policy, code)

    async def _put(self, call: Call, names: Names, policy: int) -> Reply:
        check_put(call, names[2])
        timestamp = self._clock.now()
        headers = metadata_headers(call.headers, METADATA)
        headers["Content-Type"] = call.headers["Content-Type"]
        if call.body.announces_trailers:
            headers["Trailer"] = TRAILER
        elif call.body.length is not None:
            headers["Content-Length"] = str(call.body.length)
        for name in ("Etag", "If-None-Match", IF_TIMESTAMP):
            if name in call.headers:
                headers[name] = call.headers[name]
        upload = self._upload(names, self._for_replicas(call, names, timestamp, headers, policy), policy)
        try:
            best = best_answer(await upload.run(call), upload.quorum)
        except Refusal as refusal:
            if refusal.status != 409:
                raise
            return _accepted_reply()  # something newer is there already, and stays
        if not best.is_success:
            raise Refusal(best.status)
        return reply(
            201,
            {
                "Etag": upload.etag or best.headers["Etag"],
                "Last-Modified": http_date(timestamp),
                **_replaced_upload(best),
            },
        )

    def _upload(self, names: Names, headers_for: list[dict[str, str]], policy: int) -> Upload:
        code = self._replicas.code(policy)
        if code is None:
            return Upload(self._replicas, names, headers_for, policy)
        return FragmentUpload(self._replicas, names, headers_for, policy, code)

    async def _post(self, call: Call, names: Names, policy: int) -> Reply:
        check_post(call)
        headers = metadata_headers(call.headers, METADATA)
        if "Content-Type" in call.headers:
            headers["Content-Type"] = call.headers["Content-Type"]
        return await self._change(call, names, headers, policy)

    async def _change(self, call: Call, names: Names, headers: dict[str, str], policy: int) -> Reply:
        if "X-If-Delete-At" in call.headers:
            headers["X-If-Delete-At"] = call.headers["X-If-Delete-At"]
        timestamp = just_after(call.headers[ONLY_AT]) if ONLY_AT in call.headers else self._clock.now()
        per_replica = self._for_replicas(call, names, timestamp, headers, policy)
        best = await self._replicas.change(names, call.method, per_replica.__getitem__, policy)
        if not best.is_success:
            explained = "X-If-Delete-At" in headers and best.status in (400, 412)
            raise Refusal(best.status, best.body.decode() if explained else None)
        if best.status != 202:
            return reply(best.status, _replaced_upload(best))
        kept = {k: v for k, v in best.headers.items() if k.lower().startswith("x-object-sysmeta-")}
        return _accepted_reply(without_archive(kept))

    def _for_replicas(
        self, call: Call, names: Names, timestamp: str, headers: dict[str, str], policy: int
    ) -> list[dict[str, str]]:
        """The headers for each of the object's replicas."""
        common = headers | {"X-Timestamp": timestamp, "X-Trans-Id": call.transaction_id}
        common |= self._replicas.policy_headers(policy)
        if ACCESS in call.headers:
            common[ACCESS] = call.headers[ACCESS]
        return [common | parents for parents in container_headers(self._replicas, names, policy)]


def container_headers(replicas: Replicas, names: Names, policy: int) -> list[dict[str, str]]:
    """Which replicas of the container each of the object's replicas reports to: together all of them."""
    _, partition, ring = replicas.placement(*names[:2])
    containers = [
        Parent.on_device("Container", replicas.backend, device, partition) for device in ring.primaries(partition)
    ]
    count = replicas.placement(*names, policy=policy)[2].shape.replicas
    return [joined_headers(containers[index::count] or [containers[index % len(containers)]]) for index in range(count)]


def _replaced_upload(best: BackendAnswer) -> dict[str, str]:
    """The header with the multipart upload whose parts no object needs any more; {} if there is none."""
    return {REPLACED_UPLOAD: best.headers[REPLACED_UPLOAD]} if REPLACED_UPLOAD in best.headers else {}


def _accepted_reply(headers: Mapping[str, str] | None = None) -> Reply:
    return reply(202, headers, usual_text(202).encode())
