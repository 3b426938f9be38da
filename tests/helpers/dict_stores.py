"""Stores in memory as the routing proxy sees them, which are killed with it at a chosen step.

A step is what a store or the proxy's notes do: before step N, or right after it, nothing goes on any more (`Killed`).
What the stores hold outlives that, and so does what a database holds.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl
from xml.etree.ElementTree import Element

from multidict import CIMultiDict

from storage_cluster.servers.http.messages import Body, Call, Reply
from storage_cluster.servers.routing.endpoint import Outgoing
from storage_cluster.servers.routing.locations import STORES, DatabaseLocations, Key, Locations, MemoryLocations
from storage_cluster.servers.routing.server import RoutingServer
from storage_cluster.servers.s3.documents import element, xml_reply
from storage_cluster.topology import Host, RoutingOptions, Service, Topology, User

Buckets = dict[str, dict[str, tuple[bytes, int]]]
"""Buckets, keys, bodies with the moment of their writing."""


class Killed(BaseException):
    """The proxy is not there any more."""


class Steps:
    """Counts steps, and kills at one of them: at 2 N before step N, at 2 N + 1 after it."""

    def __init__(self, kill_at: int | None = None) -> None:
        self.kill_at = kill_at
        self.names: list[str] = []

    def pass_one(self, name: str) -> None:
        """Half a step. Raises: Killed."""
        self.names.append(name)
        if self.kill_at is not None and len(self.names) > self.kill_at:
            raise Killed(name)


class DictStore:
    """An S3 store in memory, behind the interface of `Endpoint`."""

    def __init__(self, name: str, buckets: Buckets, steps: Steps, clock: Iterator[int]) -> None:
        self.name = name
        self.buckets = buckets
        self._steps = steps
        self._clock = clock

    async def send(self, request: Outgoing) -> Reply:
        """Carry a request out."""
        body = b"".join([chunk async for chunk in request.body])
        self._steps.pass_one(f"{self.name} {request.method}")
        reply = self._carry_out(request, body)
        self._steps.pass_one(f"{self.name} {request.method} done")
        return reply

    def _carry_out(self, request: Outgoing, body: bytes) -> Reply:
        if not request.bucket:
            made = (element("Bucket", element("Name", name)) for name in self.buckets)
            return xml_reply(element("ListAllMyBucketsResult", element("Buckets", *made)))
        if not request.key:
            return self._list(request) if request.method == "GET" else self._make(request)
        held = self.buckets[request.bucket]
        if request.method == "PUT":
            held[request.key] = body, next(self._clock)
            return Reply(200)
        if request.method == "DELETE":
            held.pop(request.key, None)
            return Reply(204)
        return Reply(200, CIMultiDict(), held[request.key][0]) if request.key in held else Reply(404)

    def _make(self, request: Outgoing) -> Reply:
        self.buckets.setdefault(request.bucket, {})
        return Reply(200)

    def _list(self, request: Outgoing) -> Reply:
        query = dict(parse_qsl(request.query))
        marker, prefix, limit = query.get("marker", ""), query.get("prefix", ""), int(query["max-keys"])
        held = sorted(key for key in self.buckets[request.bucket] if key > marker and key.startswith(prefix))
        shown = [self._contents(request.bucket, key) for key in held[:limit]]
        cut = element("IsTruncated", str(len(held) > limit).lower())
        return xml_reply(element("ListBucketResult", cut, *shown))

    def _contents(self, bucket: str, key: str) -> Element:
        body, moment = self.buckets[bucket][key]
        return element(
            "Contents",
            element("Key", key),
            element("Size", str(len(body))),
            element("LastModified", f"2026-11-25T12:00:00.{moment:06}Z"),
        )


@dataclasses.dataclass
class World:
    """What outlives the proxy."""

    directory: Path
    options: RoutingOptions
    stores: dict[str, Buckets] = dataclasses.field(default_factory=lambda: {store: {"box": {}} for store in STORES})
    clock: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    def copies(self, key: str) -> dict[str, bytes]:
        """The bodies that the stores have of an object."""
        held = {store: self.stores[store]["box"] for store in STORES}
        return {store: objects[key][0] for store, objects in held.items() if key in objects}

    def start(self, steps: Steps | None = None) -> RoutingServer:
        """A proxy before these stores; steps are counted from its start."""
        steps = steps or Steps()
        made = MemoryLocations if self.options.locations == "memory" else None
        locations: Locations = made(self.directory) if made else DatabaseLocations(self.directory, None)
        server = RoutingServer(_topology(self.options), _with_steps(locations, steps), lambda _: None)
        server.endpoints.update(  # type: ignore[call-overload]
            {store: DictStore(store, self.stores[store], steps, self.clock) for store in STORES}
        )
        return server


def call_of(method: str, path: str, body: bytes = b"") -> Call:
    """A request that nobody signed."""
    headers = CIMultiDict({"Host": "proxy", "Content-Length": str(len(body))})
    return Call(method, (), {}, headers, Body.of(body), path=path, target=path)


def _topology(options: RoutingOptions) -> Topology:
    gateways = tuple(Host(store, "127.0.0.1", (Service("s3", store, "127.0.0.1", 1),), store=store) for store in STORES)
    routing = dataclasses.replace(options, small="small", large="large")
    return Topology(gateways, (User("test", "tester", "testing"),), routing=routing)


def _with_steps(locations: Locations, steps: Steps) -> Locations:
    """The same, each note a step."""
    note, forget = locations.note, locations.forget

    async def stepped_note(key: Key, store: str, size_bytes: int | None = None) -> None:
        steps.pass_one("note")
        await note(key, store, size_bytes)
        steps.pass_one("note done")

    async def stepped_forget(key: Key) -> None:
        steps.pass_one("forget")
        await forget(key)
        steps.pass_one("forget done")

    locations.note, locations.forget = stepped_note, stepped_forget  # type: ignore[method-assign]
    return locations
