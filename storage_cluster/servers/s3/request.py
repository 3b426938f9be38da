"""A request to the gateway, and what answers it: the parts that every operation uses."""

import dataclasses
from collections.abc import Mapping

from storage_cluster.servers.auth import RESELLER_PREFIX
from storage_cluster.servers.http.messages import Body, Call, Handler, Reply
from storage_cluster.servers.s3.addressing import Address
from storage_cluster.servers.s3.documents import DOCUMENT_MAX_BYTES
from storage_cluster.servers.s3.errors import ErrorReply, S3Error, error_of_status
from storage_cluster.topology import User

SOURCE = "S3"


@dataclasses.dataclass(frozen=True)
class Requester:
    """Who signed a request."""

    user: User

    @property
    def id(self) -> str:
        """The access key, which is the canonical user's id too: ACCOUNT:NAME."""
        return user_id_of(self.user)

    @property
    def account(self) -> str:
        """The Swift account in which the user's buckets are."""
        return RESELLER_PREFIX + self.user.account

    def administers(self, account: str) -> bool:
        """Whether Swift lets the user do everything in an account."""
        return ".reseller_admin" in self.user.groups or (account == self.account and ".admin" in self.user.groups)


@dataclasses.dataclass
class Request:
    """One request to S3."""

    call: Call
    address: Address
    store: Handler
    """The object store behind the gateway: accounts, containers, objects."""
    requester: Requester | None = None
    """None: the request is not signed."""

    @property
    def query(self) -> Mapping[str, str]:
        """The query, decoded."""
        return self.call.query

    @property
    def headers(self) -> Mapping[str, str]:
        """The request's headers, by names in any case."""
        return self.call.headers

    @property
    def user_id(self) -> str | None:
        """Who asks; None if the request is not signed."""
        return self.requester.id if self.requester else None

    async def ask_store(
        self,
        method: str,
        names: tuple[str, ...],
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Body | bytes | None = None,
    ) -> Reply:
        """The store's reply to a call of the gateway's own; an error is a reply as well."""
        call = self.call.derive(
            method=method, names=names, query=query, headers=headers, body=body, source=SOURCE, privileged=True
        )
        return await self.store(call)

    async def read_document(self) -> bytes:
        """The request's body, a document. Raises: S3Error if it is too long or is not there."""
        if self.call.body.length is not None and self.call.body.length > DOCUMENT_MAX_BYTES:
            raise S3Error("EntityTooLarge")
        return await self.call.body.read(DOCUMENT_MAX_BYTES)

    def say(self, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
        """A reply without a body."""
        reply = Reply(status)
        reply.headers.update(headers or {})
        return reply


def user_id_of(user: User) -> str:
    """A user's access key and canonical id."""
    return f"{user.account}:{user.name}"


async def check(reply: Reply, not_found: str = "NoSuchKey") -> Reply:
    """The reply, if it is a success. Raises: S3Error; `not_found`: the code that stands for 404."""
    if reply.is_success:
        return reply
    await reply.close()
    if isinstance(reply, ErrorReply) and reply.error is not None:
        raise reply.error
    raise S3Error(not_found) if reply.status == 404 else error_of_status(reply.status)
