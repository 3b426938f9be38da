"""The gateway's side of the book of reservations: asks it in the name of who sent a request.

Source: `servers/reservations/server.py` has the API.
"""

import asyncio
import collections
import contextlib
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from storage_cluster.s3.signatures import Credentials, SignableRequest, signed_headers
from storage_cluster.servers.http.backend import Backend, BackendAnswer
from storage_cluster.servers.reservations.admission import place_of
from storage_cluster.servers.reservations.claims import AccessReservation, SpaceReservation
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.request import Request

_REGION = "us-east-1"
_REMEMBERED_MAX = 10_000
_REPORT_MARGIN_S = 1.0
"""A container's report to its account may be late by this."""


class BookClient:
    """Asks the book, and remembers for a moment what it said."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._remember_s = backend.topology.reservations.remember_s
        self._known: collections.OrderedDict[tuple[str, str], tuple[AccessReservation, float]]
        self._known = collections.OrderedDict()
        self.places = [place_of(device) for device in backend.topology.devices]
        """HOST/DEVICE of all devices."""
        self.uploads: collections.OrderedDict[str, str] = collections.OrderedDict()
        """Multipart upload to the id of its reservation, as far as this process knows."""
        self.under_way_bytes: collections.Counter[str] = collections.Counter()
        """Bucket with a space reservation to what this process writes to it at the moment."""
        self._unreserved_bytes = 0
        """What this process writes to the other buckets, or wrote so short a time ago that no account has it."""
        self._room: tuple[int | None, float] = None, 0.0
        self._report_s = backend.topology.intervals.account_report_delay_s + _REPORT_MARGIN_S

    def note_upload(self, upload_id: str, access_id: str) -> None:
        """Remember whose throughput the parts of an upload use."""
        self.uploads[upload_id] = access_id
        if len(self.uploads) > _REMEMBERED_MAX:
            self.uploads.popitem(last=False)

    async def reserve_space(self, request: Request, asked: SpaceReservation) -> SpaceReservation:
        """The reservation for a bucket that is to be made. Raises: S3Error (ReservationRefused)."""
        body = {name: value for name, value in asked.to_json().items() if name not in ("id", "owner")}
        answer = await self._ask(request, "POST", "/v1/spaces", json.dumps(body).encode())
        if answer.status == HTTPStatus.CONFLICT:
            raise S3Error("ReservationRefused", f"The space cannot be reserved: {_error_text(answer)}.")
        if answer.status == HTTPStatus.BAD_REQUEST:
            raise S3Error("InvalidArgument", f"The space cannot be reserved: {_error_text(answer)}.")
        if not answer.is_success:
            raise S3Error("ServiceUnavailable", "The book of reservations does not answer. Try again.")
        return SpaceReservation.from_json(json.loads(answer.body), time.time())

    async def release_space(self, request: Request, space: SpaceReservation) -> None:
        """Give back what a bucket's reservation holds."""
        await self._ask(request, "DELETE", f"/v1/spaces/{space.id}", b"")

    async def access(self, request: Request, access_id: str) -> AccessReservation:
        """What an id stands for. Raises: S3Error (NoSuchReservation, ServiceUnavailable)."""
        key = request.user_id or "", access_id
        known = self._known.get(key)
        if known is not None and known[1] > time.monotonic():
            return known[0]
        path = f"/v1/accesses/{access_id}"
        is_id = access_id.isascii() and access_id.isalnum()
        answer = await self._ask(request, "GET", path, b"") if is_id else BackendAnswer(404)
        if answer.is_success:
            found = AccessReservation.from_json(json.loads(answer.body), time.time())
            self._known[key] = found, time.monotonic() + self._remember_s
            self._known.move_to_end(key)
            if len(self._known) > _REMEMBERED_MAX:
                self._known.popitem(last=False)
            return found
        if answer.status == HTTPStatus.NOT_FOUND:
            self._known.pop(key, None)
            raise S3Error("NoSuchReservation", fields={"AccessId": access_id})
        if known is not None:  # the book is away, and what it said holds until the reservation's end
            return known[0]
        raise S3Error("ServiceUnavailable", "The book of reservations does not answer. Try again.")

    async def unreserved_room(self, request: Request) -> int | None:
        """What is left for buckets without reserved space; None if there is no limit.

        Where the book does not answer, what it said last holds, as with accesses; if it never did, there is no limit.
        """
        book = self._backend.topology.reservation_book
        if book is None:
            return None
        room_bytes, until_s = self._room
        if until_s <= time.monotonic():
            headers = {"X-Trans-Id": request.call.transaction_id}
            answer = await self._backend.request(book, "GET", "/v1/room", headers)
            room_bytes = json.loads(answer.body)["bytes"] if answer.is_success else room_bytes
            self._room = room_bytes, time.monotonic() + self._remember_s
        return None if room_bytes is None else room_bytes - self._unreserved_bytes

    @contextlib.contextmanager
    def count_unreserved(self, size_bytes: int) -> Iterator[None]:
        """Count bytes that go to a bucket without reserved space, until its account has them."""
        self._unreserved_bytes += size_bytes
        try:
            yield
        finally:
            asyncio.get_running_loop().call_later(self._report_s, self._forget_unreserved, size_bytes)

    def _forget_unreserved(self, size_bytes: int) -> None:
        self._unreserved_bytes -= size_bytes

    async def _ask(self, request: Request, method: str, path: str, body: bytes) -> BackendAnswer:
        """The book's answer, asked in the name of who sent the request."""
        book = self._backend.topology.reservation_book
        if book is None:
            raise S3Error("NotImplemented", "This store has no book of reservations.")
        assert request.requester is not None
        host = f"{book.address}:{book.port}"
        hashed = hashlib.sha256(body).hexdigest()
        time_ = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        signable = SignableRequest(method, path, "", [("host", host)])
        credentials = Credentials(request.requester.id, request.requester.user.key)
        headers = signed_headers(signable, credentials, _REGION, time_, hashed)
        headers = {**headers, "X-Trans-Id": request.call.transaction_id}
        return await self._backend.request(book, method, path, headers, body)


def _error_text(answer: BackendAnswer) -> str:
    with contextlib.suppress(ValueError):
        fields: Any = json.loads(answer.body)
        if isinstance(fields, Mapping) and isinstance(fields.get("error"), str):
            return str(fields["error"])
    return f"the book answered {answer.status}"
