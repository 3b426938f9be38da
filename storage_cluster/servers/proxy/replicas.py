"""Sends requests to the devices of the replicas: one after the other to read, all at once to change.

A read is answered by the first replica that has the object. A change is sent to all replicas; if a server does not
answer, the next handoff takes its replica. The change succeeds when a majority confirms it; the proxy waits a moment
longer for the others, so that a client that reads at once finds its change on each of them.

Source: Swift, swift.proxy.controllers.base (`GETorHEAD_base`, `make_requests`, `best_response`).
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from storage_cluster.erasure import Code, code_of
from storage_cluster.policies import POLICY_INDEX, ring_name
from storage_cluster.ring import Ring
from storage_cluster.servers.http.backend import Backend, BackendAnswer, device_path
from storage_cluster.services import RING_SERVICES
from storage_cluster.topology import Device

_NO_SPACE_ON_DEVICE = 507

HeadersFor = Callable[[int], Mapping[str, str]]
"""Headers for the n-th replica's request."""


class Replicas:
    """The rings, and requests to the devices of a path."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.quorum = backend.topology.ring.replicas // 2 + 1
        self.post_quorum_timeout_s = backend.topology.intervals.post_quorum_timeout_s

    def placement(self, *names: str, policy: int = 0) -> tuple[str, int, Ring]:
        """Service, partition and ring of account[, container[, object]]; `policy` is the container's."""
        kind = RING_SERVICES[len(names) - 1]
        ring = self.backend.rings[ring_name(policy) if kind == "object" else kind]
        return kind, ring.partition(*names), ring

    def code(self, policy: int) -> Code | None:
        """How a policy's objects are coded; None if it keeps replicas."""
        return code_of(self.backend.topology.policies, policy)

    def policy_headers(self, policy: int) -> dict[str, str]:
        """What says to an object server which policy is meant; nothing where there is one only."""
        return {POLICY_INDEX: str(policy)} if len(self.backend.topology.policies) > 1 else {}

    def readable(self, *names: str, policy: int = 0, reserved: bool = False) -> list[Device]:
        """Devices to read from, in the order to try: the primaries, shuffled to share the load, then the handoffs.

        `reserved`: first the one on which a reservation to read it is made.
        """
        _, partition, ring = self.placement(*names, policy=policy)
        primaries = list(ring.primaries(partition))
        if reserved:
            primaries = reading_order(ring, partition)
        else:
            random.shuffle(primaries)
        return primaries + list(ring.handoffs(partition))

    async def first(
        self, names: Sequence[str], method: str, headers: Mapping[str, str], query: str = ""
    ) -> BackendAnswer:
        """The first good answer to a read; otherwise 404 if a replica gave that, otherwise 503."""
        service_name, partition, _ = self.placement(*names)
        not_found: BackendAnswer | None = None
        for device in self.readable(*names):
            service = self.backend.service(service_name, device)
            path = device_path(device, partition, *names) + query
            answer = await self.backend.request(service, method, path, headers)
            if answer.is_success:
                return answer
            if answer.status == 404:
                not_found = not_found or answer
        return not_found or BackendAnswer(503)

    async def each(
        self, names: Sequence[str], method: str, headers: Mapping[str, str], query: str = ""
    ) -> list[BackendAnswer]:
        """The good answers to a read, of every replica on its own device."""
        service_name, partition, ring = self.placement(*names)
        asked = [
            self.backend.request(
                self.backend.service(service_name, device),
                method,
                device_path(device, partition, *names) + query,
                headers,
            )
            for device in ring.primaries(partition)
        ]
        return [answer for answer in await asyncio.gather(*asked) if answer.is_success]

    async def change(
        self, names: Sequence[str], method: str, headers_for: HeadersFor, policy: int = 0
    ) -> BackendAnswer:
        """A change, sent to all replicas; the answer that a majority agrees on, else 503."""
        service_name, partition, ring = self.placement(*names, policy=policy)
        handoffs = ring.handoffs(partition)
        tasks = {
            asyncio.create_task(
                self._change_one(service_name, partition, names, method, headers_for(index), device, handoffs)
            )
            for index, device in enumerate(ring.primaries(partition))
        }
        answers = await first_and_rest(tasks, ring.quorum, self.post_quorum_timeout_s)
        return best_answer(answers, ring.quorum)

    async def _change_one(
        self,
        service_name: str,
        partition: int,
        names: Sequence[str],
        method: str,
        headers: Mapping[str, str],
        primary: Device,
        handoffs: Iterator[Device],
    ) -> BackendAnswer:
        answer = BackendAnswer(503)
        for device in with_handoffs(primary, handoffs):
            service = self.backend.service(service_name, device)
            answer = await self.backend.request(service, method, device_path(device, partition, *names), headers)
            if answer.status not in (0, _NO_SPACE_ON_DEVICE):
                return answer
        return answer


def reading_order(ring: Ring, partition: int) -> list[Device]:
    """The primaries as a reserved access reads from them: always the same one first, each first for as many."""
    primaries = list(ring.primaries(partition))
    first = partition % len(primaries)
    return primaries[first:] + primaries[:first]


def with_handoffs(primary: Device, handoffs: Iterator[Device]) -> Iterator[Device]:
    """The primary, then handoffs, taken from what all replicas of a request share."""
    yield primary
    yield from handoffs


async def first_and_rest(tasks: set[asyncio.Task[BackendAnswer]], quorum: int, others_s: float) -> list[BackendAnswer]:
    """The answers of a quorum that agrees, and of those others that come within `others_s` more; the rest goes on
    alone."""
    answers: list[BackendAnswer] = []
    pending = tasks
    while pending and not has_quorum([answer.status for answer in answers], quorum):
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        answers += [task.result() for task in done]
    if pending:
        done, pending = await asyncio.wait(pending, timeout=others_s)
        answers += [task.result() for task in done]
    _keep_going(pending)
    return answers


def has_quorum(statuses: Sequence[int], quorum: int) -> bool:
    """Whether enough answers are of one kind (2xx, 3xx or 4xx)."""
    return any(sum(status // 100 == kind for status in statuses) >= quorum for kind in (2, 3, 4))


def best_answer(answers: Sequence[BackendAnswer], quorum: int) -> BackendAnswer:
    """The answer of a majority, with the highest status among its answers; 503 if there is no majority."""
    for kind in (2, 3, 4):
        same = [answer for answer in answers if answer.status // 100 == kind]
        if len(same) >= quorum:
            return max(same, key=lambda answer: answer.status)
    return BackendAnswer(503)


_background: set[asyncio.Task[BackendAnswer]] = set()


def _keep_going(tasks: set[asyncio.Task[BackendAnswer]]) -> None:
    """Keep references to tasks that nobody awaits: the event loop's weak references would allow their collection."""
    for task in tasks:
        _background.add(task)
        task.add_done_callback(_background.discard)
