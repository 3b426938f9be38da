"""The API of the book: JSON over HTTP, signed as S3's requests are, by the same users.

    POST   /v1/accesses        {"bucket", "key" (of a read), "direction", "mb_per_s", "start", "end"}      201, or 409
    POST   /v1/spaces          {"bucket", "bytes", "base_mb_per_s", "start", "end"}                        201, or 409
    GET    /v1/accesses[/ID]   one, or all that the user has and that have not ended
    DELETE /v1/accesses/ID     gives back what it holds
           /v1/spaces          likewise; the gateway makes one with a bucket
    GET    /v1/room            {"bytes"}: what is left for buckets without reserved space; null: no space is reserved

An error is `{"error": "…"}`. A user sees only reservations of his own; those of others are 404. The room is the same
for everybody, and its request needs no signature. It counts what accounts hold, as last reported, without what buckets
hold of the space that is reserved for them.
"""

import collections
import json
from collections.abc import AsyncIterator, Callable, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from multidict import CIMultiDict

from storage_cluster.servers.auth import RESELLER_PREFIX
from storage_cluster.servers.http.backend import Backend
from storage_cluster.servers.http.listings import LIMIT_MAX
from storage_cluster.servers.http.messages import Call, Refusal, Reply
from storage_cluster.servers.http.values import is_true
from storage_cluster.servers.proxy.replicas import Replicas, reading_order
from storage_cluster.servers.proxy.slo_manifest import parse_stored
from storage_cluster.servers.reservations.admission import Admission, Claim, NotAdmittedError, place_of
from storage_cluster.servers.reservations.book import ACCESS, SPACE, Book
from storage_cluster.servers.reservations.claims import (
    PARTS_SUFFIX,
    READ,
    AccessReservation,
    ClaimError,
    SpaceReservation,
)
from storage_cluster.topology import User

PATH_SEGMENT_COUNT = 3
DOCUMENT_MAX_BYTES = 16_384
_KINDS = {"accesses": ACCESS, "spaces": SPACE}

Authenticate = Callable[[Call], User | None]
"""Who signed a request; None if nobody did. Raises: Refusal."""


class BookServer:
    """Answers requests to the book."""

    def __init__(self, backend: Backend, book: Book, authenticate: Authenticate, now_s: Callable[[], float]) -> None:
        self._replicas = Replicas(backend)
        self._accounts = sorted({RESELLER_PREFIX + user.account for user in backend.topology.users})
        self._book = book
        self._authenticate = authenticate
        self._now_s = now_s

    async def handle(self, call: Call) -> Reply:
        """One request."""
        try:
            return await self._answer(call)
        except Refusal as refusal:
            return reply_to(refusal, call.transaction_id)

    async def _answer(self, call: Call) -> Reply:
        """Raises: Refusal."""
        version, kind, reservation_id = (*call.names, "", "", "")[:3]
        if (version, kind, call.method) == ("v1", "room", "GET"):
            return json_reply(200, {"bytes": await self._room(call.transaction_id)})
        if version != "v1" or kind not in _KINDS:
            raise Refusal(404, "there are /v1/accesses and /v1/spaces")
        user = self._authenticate(call)
        if user is None:
            raise Refusal(403, "the request is not signed")
        owner = f"{user.account}:{user.name}"
        if call.method == "GET":
            return self._get(_KINDS[kind], reservation_id, owner)
        if call.method == "DELETE" and reservation_id:
            if not self._book.cancel(_KINDS[kind], reservation_id, owner):
                raise Refusal(404, "there is no such reservation")
            return Reply(204)
        if call.method == "POST" and not reservation_id:
            return await self._post(call, kind, owner)
        raise Refusal(405, "GET, POST and DELETE are possible")

    def _get(self, kind: str, reservation_id: str, owner: str) -> Reply:
        if not reservation_id:
            return json_reply(200, self._book.list_open(kind, owner))
        found = self._book.find(kind, reservation_id, owner)
        if found is None:
            raise Refusal(404, "there is no such reservation")
        return json_reply(200, found)

    async def _room(self, transaction_id: str) -> int | None:
        """What is left for buckets without reserved space; None if no space is reserved. Raises: Refusal (503)."""
        limit_bytes = self._book.unreserved_bytes()
        return None if limit_bytes is None else limit_bytes - await self._unreserved_bytes(transaction_id)

    async def _unreserved_bytes(self, transaction_id: str) -> int:
        """What is stored outside of reserved space, as accounts report it. Raises: Refusal (503)."""
        held: dict[tuple[str, str], int] = {}
        for account in self._accounts:
            held |= {(account, name): size async for name, size in self._containers(account, transaction_id)}
        reserved: collections.Counter[tuple[str, str]] = collections.Counter()
        for space in self._book.open_spaces():
            reserved[account_of(space.owner), space.bucket] += space.bytes
        within = [
            min(size, held.get((account, bucket), 0) + held.get((account, bucket + PARTS_SUFFIX), 0))
            for (account, bucket), size in reserved.items()
        ]
        return sum(held.values()) - sum(within)

    async def _containers(self, account: str, transaction_id: str) -> AsyncIterator[tuple[str, int]]:
        """Names and bytes of an account's containers. Raises: Refusal (503)."""
        marker = ""
        while True:
            query, headers = urlencode({"marker": marker}), {"X-Trans-Id": transaction_id}
            answer = await self._replicas.first((account,), "GET", headers, f"?{query}")
            if not answer.is_success and answer.status != HTTPStatus.NOT_FOUND:
                raise Refusal(503, "the storage servers do not answer")
            entries = json.loads(answer.body or b"[]") if answer.is_success else []
            for entry in entries:
                yield entry["name"], entry["bytes"]
            if len(entries) < LIMIT_MAX:
                return
            marker = entries[-1]["name"]

    async def _post(self, call: Call, kind: str, owner: str) -> Reply:
        try:
            fields = json.loads(await call.body.read(DOCUMENT_MAX_BYTES) or b"null")
            if _KINDS[kind] == SPACE:
                return json_reply(201, (await self._reserve_space(fields, call, owner)).to_json())
            return json_reply(201, (await self._reserve_access(fields, call, owner)).to_json())
        except (ValueError, RecursionError) as error:  # ClaimError is one
            text = str(error) if isinstance(error, ClaimError) else "this is no JSON"
            raise Refusal(400, text) from None
        except NotAdmittedError as error:
            raise Refusal(409, str(error)) from None

    async def _reserve_space(self, fields: Any, call: Call, owner: str) -> SpaceReservation:
        asked = SpaceReservation.from_json(fields, self._now_s())
        self._check_end(asked.end_s)
        held_bytes = await self._unreserved_bytes(call.transaction_id)
        return self._book.enter(SPACE, owner, lambda admission: (asked, admission.space(asked, held_bytes)))

    async def _reserve_access(self, fields: Any, call: Call, owner: str) -> AccessReservation:
        asked = AccessReservation.from_json(fields, self._now_s())
        self._check_end(asked.end_s)
        account = account_of(owner)
        if asked.direction == READ:
            pieces = await self._pieces((account, asked.bucket, asked.key), call.transaction_id)
            return self._book.enter(ACCESS, owner, lambda admission: admission.read(asked, pieces))
        await self._require_bucket(account, asked.bucket, call.transaction_id)
        return self._book.enter(ACCESS, owner, lambda admission: admission.write(asked))

    def _check_end(self, end_s: float) -> None:
        if end_s <= self._now_s():
            raise ClaimError("the end is in the past")

    async def _require_bucket(self, account: str, bucket: str, transaction_id: str) -> None:
        answer = await self._replicas.first((account, bucket), "HEAD", {"X-Trans-Id": transaction_id})
        if answer.status == 404:
            raise Refusal(404, f"there is no bucket {bucket}")
        if not answer.is_success:
            raise Refusal(503, "the storage servers do not answer")

    async def _pieces(self, names: tuple[str, str, str], transaction_id: str) -> Sequence[tuple[str, int]]:
        """Where an object lies: HOST/DEVICE and bytes of each of its pieces. Raises: Refusal (404, 503)."""
        head = await self._replicas.first(names, "HEAD", {"X-Trans-Id": transaction_id})
        if head.status == 404:
            raise Refusal(404, f"there is no object {names[2]} in bucket {names[1]}")
        if not head.is_success:
            raise Refusal(503, "the storage servers do not answer")
        own = (self._place(names), int(head.headers.get("Content-Length", "0")))
        if not is_true(head.headers.get("X-Static-Large-Object")):
            return [own]
        manifest = await self._replicas.first(names, "GET", {"X-Trans-Id": transaction_id})
        segments = [entry.segment for entry in parse_stored(manifest.body)] if manifest.is_success else []
        return [
            own,
            *((self._place((names[0], each.container, each.name)), each.length) for each in segments if each.container),
        ]

    def _place(self, names: tuple[str, str, str]) -> str:
        _, partition, ring = self._replicas.placement(*names)
        return place_of(reading_order(ring, partition)[0])


def account_of(owner: str) -> str:
    """The account of a reservation's owner (ACCOUNT:USER)."""
    return RESELLER_PREFIX + owner.partition(":")[0]


def admission_rules(backend: Backend) -> Callable[[list[Claim]], Admission]:
    """The rules of the topology's devices as they are now."""
    return lambda claims: Admission(backend.topology, backend.rings["object"], claims)


def json_reply(status: int, value: object) -> Reply:
    """A reply with JSON."""
    return Reply(status, CIMultiDict({"Content-Type": "application/json"}), json.dumps(value).encode())


def reply_to(refusal: Refusal, _: str) -> Reply:
    """A refusal as JSON."""
    text = refusal.text or refusal.reply().phrase
    return json_reply(refusal.status, {"error": text})
