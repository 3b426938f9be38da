"""What an operation of S3 works with: the request, its bucket and key, and the gateway's parts."""

import dataclasses
import time
from collections.abc import Mapping

from multidict import CIMultiDict

from storage_cluster.servers.http.times import TimestampMaker
from storage_cluster.servers.proxy.replicas import Replicas
from storage_cluster.servers.reservations.claims import AccessReservation
from storage_cluster.servers.s3.addressing import Address
from storage_cluster.servers.s3.authentication import Authenticator, Signed
from storage_cluster.servers.s3.book_client import BookClient
from storage_cluster.servers.s3.buckets import Bucket, Buckets
from storage_cluster.servers.s3.cache import ObjectCache
from storage_cluster.servers.s3.lifecycle import Clock
from storage_cluster.servers.s3.request import Request


@dataclasses.dataclass
class Gateway:
    """Made once for a gateway's process."""

    authenticator: Authenticator
    buckets: Buckets
    clock: TimestampMaker
    replicas: Replicas
    cache: ObjectCache
    day_s: float
    """How long life cycles take a day to be."""
    book: BookClient

    def day_clock(self) -> Clock:
        """The present, for life cycles."""
        return Clock(time.time(), self.day_s)


@dataclasses.dataclass
class Operation:
    """One operation on a bucket or on an object in it."""

    request: Request
    signed: Signed
    gateway: Gateway
    bucket: Bucket
    key: str
    original_headers: Mapping[str, str]
    """Those of the client's request, also where this is a reading that the request causes."""
    reservation: AccessReservation | None = None
    """Whose throughput it uses."""

    def is_user(self, user_id: str) -> bool:
        """Whether there is a user with this id."""
        return self.gateway.authenticator.is_user(user_id)

    async def on_object(self, bucket_name: str, key: str, version_id: str | None) -> "Operation":
        """A reading of another object for the same user, which `x-amz-copy-source` names. Raises: S3Error."""
        bucket = self.bucket
        if bucket_name != bucket.name:
            bucket = await self.gateway.buckets.find(self.request, bucket_name)
        query = {} if version_id is None else {"versionId": version_id}
        call = dataclasses.replace(self.request.call, method="GET", query=query, headers=CIMultiDict())
        request = dataclasses.replace(self.request, call=call, address=Address(bucket_name, key))
        return dataclasses.replace(self, request=request, bucket=bucket, key=key)
