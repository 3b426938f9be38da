"""What the load generator needs to know of a kind of store: how a request looks, and which answers are good ones."""

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Protocol

from storage_cluster.bench.engine.bodies import Body
from storage_cluster.bench.engine.connection import Endpoint, Reply
from storage_cluster.bench.model import Kind


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """One operation to do."""

    kind: Kind
    container: str
    object: str = ""
    size_bytes: int = 0  # of what is written
    hash_check: bool = False
    zeros: bool = False
    chunked: bool = False
    delete_after_s: int = 0

    @property
    def path(self) -> str:
        """CONTAINER or CONTAINER/OBJECT."""
        return f"{self.container}/{self.object}" if self.object else self.container


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """A request as it goes to the kernel."""

    head: bytes
    body: Body | list[bytes | memoryview]
    body_len: int  # of the object, without the framing of chunks


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One request of an order that needs several."""

    build: Callable[[], Request]  # anew for each attempt
    fault: Callable[[Reply], str]  # as `Storage.fault`
    kept: bool = False  # the response's body and headers are
    headers_kept: bool = False
    hashed: bool = False


class StepError(Exception):
    """A step failed for good: its answer, and why that is not a good one."""

    def __init__(self, reply: Reply, error: str) -> None:
        super().__init__(error)
        self.reply = reply
        self.error = error


Send = Callable[[Step], Awaitable[Reply]]
"""Sends a step's request, with its retries, over a connection that is free, or will be. Raises: StepError."""


class Storage(Protocol):
    """A store and the right to use it."""

    @property
    def endpoint(self) -> Endpoint:
        """Where requests go."""

    @property
    def connections_max(self) -> int:
        """Connections that an order may need at once."""

    def request(self, order: Order, *, keep_alive: bool) -> Request:
        """The bytes of the request."""

    def fault(self, order: Order, reply: Reply) -> str:
        """Why an answer is not a good one: one of `ERROR_KINDS`, or "" if it is good."""

    def may_retry(self, order: Order, reply: Reply) -> bool:
        """Whether trying again may help."""

    async def renew(self, stale: Request) -> None:
        """Get a new token if the one of that request is still in use. Raises: NotRunningError."""

    def has_parts(self, order: Order) -> bool:
        """Whether an order needs several requests: then `transfer` does it, and `request` is not asked."""

    async def transfer(self, order: Order, send: Send, *, keep_alive: bool) -> int:
        """Do an order of several requests, some of them side by side; bytes moved. Raises: StepError."""

    async def present(self, container: str) -> dict[str, int]:
        """Name and size of each object in a container; empty if it is not there. Raises: NotRunningError."""
