"""Clients that write, overwrite, delete and read without end, and remember the answers."""

import collections
import dataclasses
import hashlib
import http.client
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol
from urllib.parse import quote

from benchmarks.fault_run.objects import DELETED, History, in_parts_etag
from storage_cluster.s3.signatures import Credentials, SignableRequest, signed_headers

TIMEOUT_S = 20.0
PAUSE_S = 0.03
NEVER_SENT = ConnectionRefusedError.__name__
REFUSED_PAUSE_S = 0.3
SIZE_MAX_LOG2 = 18
OBJECTS_AT_ONCE = 12
SHARE_IN_PARTS = 0.3
_FAILURES = (OSError, http.client.HTTPException)


@dataclasses.dataclass(frozen=True)
class Answer:
    """A server's answer; status 0 if there was none."""

    status: int
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body: bytes = b""
    error: str = ""


WriteInParts = Callable[[str, bytes], Answer]
"""Writes an object at a path as a multipart upload."""


class Access(Protocol):
    """How to reach the store as its user."""

    def ask(self, method: str, path: str, body: bytes | None = None) -> Answer:
        """One request, on `/container` or `/container/object`."""


@dataclasses.dataclass(frozen=True)
class SwiftAccess:
    """Through the proxy."""

    address: str
    port: int
    account_path: str
    token: str

    def ask(self, method: str, path: str, body: bytes | None = None) -> Answer:
        """One request on a connection of its own."""
        return ask(self.address, self.port, method, self.account_path + path, body, {"X-Auth-Token": self.token})

    def make_container(self, name: str, policy: str) -> Answer:
        """Make a container of a storage policy."""
        headers = {"X-Auth-Token": self.token, "X-Storage-Policy": policy}
        return ask(self.address, self.port, "PUT", f"{self.account_path}/{name}", headers=headers)


@dataclasses.dataclass(frozen=True)
class S3Access:
    """Through an S3 gateway."""

    address: str
    port: int
    credentials: Credentials

    def ask(self, method: str, path: str, body: bytes | None = None) -> Answer:
        """One request on a connection of its own."""
        return self._ask(method, quote(path), "", body)

    def write_in_parts(self, path: str, body: bytes) -> Answer:
        """A multipart upload of one part; the first answer that is no success ends it."""
        begun = self._ask("POST", path, "uploads=", b"")
        found = re.search(rb"<UploadId>([^<]+)</UploadId>", begun.body)
        if found is None:
            return dataclasses.replace(begun, error=begun.error and NEVER_SENT)
        upload = f"uploadId={found[1].decode()}"
        part = self._ask("PUT", path, f"partNumber=1&{upload}", body)
        if part.status != 200:
            return dataclasses.replace(part, error=part.error and NEVER_SENT)
        etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
        listed = f"<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
        document = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
        return self._ask("POST", path, upload, document)

    def _ask(self, method: str, path: str, query: str, body: bytes | None) -> Answer:
        host = f"{self.address}:{self.port}"
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        signed = SignableRequest(method, path, query, [("host", host)])
        hashed = hashlib.sha256(body or b"").hexdigest()
        headers = {"Host": host} | signed_headers(signed, self.credentials, "us-east-1", now, hashed)
        return ask(self.address, self.port, method, f"{path}?{query}" if query else path, body, headers)


def ask(
    address: str, port: int, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}
) -> Answer:
    """One request on a connection of its own; no answer is a value too."""
    connection = http.client.HTTPConnection(address, port, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, response.read())
    except _FAILURES as error:
        return Answer(0, error=type(error).__name__)
    finally:
        connection.close()


class Client(threading.Thread):
    """One client with objects of its own. It stands still while `gate` is closed, between operations."""

    def __init__(
        self, access: Access, container: str, number: int, seed: int, write_in_parts: WriteInParts | None = None
    ) -> None:
        super().__init__(daemon=True)
        self.histories: list[History] = []
        self.counts: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []  # what must never happen
        self.gate = threading.Event()
        self.stands = threading.Event()
        self.ending = False
        self._access = access
        self._container = container
        self._number = number
        self._seed = seed
        self._write_in_parts = write_in_parts
        self._random = random.Random(f"{seed}/client/{number}")

    def run(self) -> None:
        """Write and read until `ending` is set."""
        while not self.ending:
            if not self.gate.is_set():
                self.stands.set()
                self.gate.wait()
                self.stands.clear()
                continue
            self._operate()
            time.sleep(PAUSE_S)

    def _operate(self) -> None:
        open_ones = [history for history in self.histories[-OBJECTS_AT_ONCE:] if not history.is_retired]
        if not open_ones or self._random.random() < 0.3:
            history = History(f"c{self._number}-{len(self.histories):05}", self._seed)
            self.histories.append(history)
            self._put(history)
            return
        history = self._random.choice(open_ones)
        action = self._random.choices((self._put, self._delete, self._get), (35, 12, 53))[0]
        action(history)

    def _put(self, history: History) -> None:
        size = int(2 ** self._random.uniform(0, SIZE_MAX_LOG2)) - 1
        version, body = history.next_body(size)
        path = f"/{self._container}/{history.name}"
        if self._write_in_parts is not None and self._random.random() < SHARE_IN_PARTS:
            history.in_parts.add(version)
            self._note(history, version, "PARTS", self._write_in_parts(path, body))
        else:
            self._note(history, version, "PUT", self._access.ask("PUT", path, body))

    def _delete(self, history: History) -> None:
        answer = self._access.ask("DELETE", f"/{self._container}/{history.name}")
        self._note(history, DELETED, "DELETE", answer)

    def _note(self, history: History, version: int, method: str, answer: Answer) -> None:
        self.counts[f"{method} {answer.status or answer.error}"] += 1
        if answer.status in (200, 201, 204):
            history.acknowledged = version
        elif answer.error == NEVER_SENT:
            time.sleep(REFUSED_PAUSE_S)
        else:
            history.uncertain = version

    def _get(self, history: History) -> None:
        answer = self._access.ask("GET", f"/{self._container}/{history.name}")
        self.counts[f"GET {answer.status or answer.error}"] += 1
        if answer.status == 404:
            self.counts["read: " + ("as written" if "" in history.allowed_etags() else "missing for now")] += 1
        elif answer.status == 200:
            self.counts["read: " + self._classify(history, answer)] += 1

    def _classify(self, history: History, answer: Answer) -> str:
        etag, said = (
            hashlib.md5(answer.body, usedforsecurity=False).hexdigest(),
            answer.headers.get("etag", "").strip('"'),
        )
        if said not in (etag, in_parts_etag(etag)):
            return "damaged, as its ETag shows"
        etag = said
        if etag in history.allowed_etags():
            return "as written"
        if history.version_of(etag) is not None:
            return "an older version for now"
        self.wrong.append(
            f"{history.name}: read {len(answer.body)} bytes that nobody wrote, with an ETag that fits them"
        )
        return "never written"
