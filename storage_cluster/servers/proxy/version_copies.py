"""Copies an object unchanged from one name to another, to keep and to restore versions.

A symlink is moved as a link, a large object as its manifest, and sysmeta goes along; the mover needs no access of the
user's to either place, since the user has been asked already whether the change itself is allowed.

Source: Swift, swift.common.middleware.versioned_writes.
"""

from multidict import CIMultiDict

from storage_cluster.servers.http.messages import Call, Handler, Refusal, Reply
from storage_cluster.servers.object.server import METADATA
from storage_cluster.servers.proxy.infos import ContainerInfo

SOURCE = "VW"
DELETED_TYPE = "application/x-deleted;swift_versions_deleted=1"
"""The Content-Type of a version that says: deleted."""
Names = tuple[str, ...]


async def may_write(call: Call, info: ContainerInfo) -> None:
    """Whether the user may change the container's objects, asked before anything is copied. Raises: Refusal."""
    try:
        await call.check_access(None)
    except Refusal:
        await call.check_access(info.write_acl)


async def current(call: Call, inner: Handler, names: Names) -> Reply:
    """The object of that name, as stored. The caller closes it."""
    return await inner(call.derive(method="GET", names=names, query={"symlink": "get"}, source=SOURCE, privileged=True))


async def put_as(call: Call, inner: Handler, found: Reply, names: Names, extra: dict[str, str] | None = None) -> Reply:
    """Write an object under another name; returns the reply."""
    headers = CIMultiDict({name: value for name, value in found.headers.items() if name.lower().startswith(METADATA)})
    headers["Content-Type"] = found.headers.get("Content-Type", "application/octet-stream")
    headers["Etag"] = found.headers.get("Etag", "")
    headers.update(extra or {})
    put = call.derive(method="PUT", names=names, headers=headers, body=found.as_body(), source=SOURCE, privileged=True)
    try:
        return await inner(put)
    finally:
        await found.close()


def check_reply(reply: Reply) -> Reply:
    """The reply to a write of a version, if it went well. Raises: Refusal (412, 503): the change itself is not made."""
    if reply.is_success:
        return reply
    raise Refusal(412 if 400 <= reply.status < 500 else 503)
