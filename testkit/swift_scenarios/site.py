"""An object store that a scenario talks to, and what it answered, in a form in which two stores can be compared.

What must differ from run to run (times, tokens, transaction ids, addresses) is replaced by words; what may differ
without meaning anything (the order of headers, of keys in JSON) is put in order.
"""

import contextlib
import dataclasses
import http.client
import json
import re
from collections.abc import Mapping
from urllib.parse import quote

ACCOUNT = "/v1/AUTH_test"
USERS = {
    "test:tester": "testing",
    "test:tester3": "testing3",
    "test2:tester2": "testing2",
    "admin:admin": "admin",
    "admin:auditor": "admin_ro",
}
OWNER = "test:tester"
MANIFESTED = "manifested"
"""In the name of what is a manifest or leads to one: digests in the answers are those of what has times in it."""

_DROPPED = frozenset(
    ("date", "x-trans-id", "x-openstack-request-id", "connection", "server", "transfer-encoding", "keep-alive")
)
_SETS = frozenset(
    ("access-control-expose-headers", "access-control-allow-headers", "access-control-allow-methods", "vary", "allow")
)
_LATER = re.compile(r"x-account-(storage-policy-.*-)?(container-count|object-count|bytes-used)", re.IGNORECASE)
_WORDS = (
    (re.compile(r"AUTH_made[0-9a-f]{32}"), "AUTH_made"),
    (re.compile(r"AUTH_tk[0-9a-f]{32}"), "<token>"),
    (re.compile(r"tx[0-9a-f]{21}-[0-9a-f]{10}"), "<transaction>"),
    (re.compile(r"version-id=1[0-9]{9}\.[0-9]{5}"), "version-id=<id>"),
    (re.compile(r"(temp_url_sig|temp_url_expires)=[^&' ]+"), r"\1=…"),
    (re.compile(r"\b1[0-9]{9}\.[0-9]{5}(_[0-9a-f]{16})?"), "<timestamp>"),
    (re.compile(r"\b1[789][0-9]{8}\b"), "<seconds>"),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"), "<date>"),
    (re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT"), "<date>"),
    (re.compile(r"(?<=http://)[0-9.]+:[0-9]+"), "<host>"),
    (re.compile(r"<count>[0-9]+</count><bytes>[0-9]+</bytes>"), "<count/><bytes/>"),
    (re.compile(r"(?<=boundary=)[0-9a-f]{32}"), "<boundary>"),
    (re.compile(r"(?m)^--[0-9a-f]{32}"), "--<boundary>"),
)
_DIGEST = re.compile(r"\b[0-9a-f]{32}\b")


@dataclasses.dataclass(frozen=True)
class Answer:
    """A response, read whole."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """A header's value."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


@dataclasses.dataclass(frozen=True)
class Exchange:
    """A request and its answer, comparable."""

    request: str
    status: str
    headers: dict[str, str]
    body: str


class Site:
    """A store under examination."""

    def __init__(self, host: str, port: int, auth_port: int | None = None) -> None:
        self._host = host
        self._port = port
        self._auth_port = auth_port or port
        self._tokens: dict[str, str] = {}
        self.exchanges: list[Exchange] = []

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        user: str | None = OWNER,
    ) -> Answer:
        """Record the answer to a request. `path` is below the owner's account unless it begins with `/v1` or `//`."""
        answer = self.quietly(method, path, headers, body, user=user)
        described = ", ".join(f"{name}: {value[:80]}" for name, value in (headers or {}).items())
        line = f"{method} {_full(path)} as {user or 'nobody'}" + (f" ({described})" if described else "")
        self.exchanges.append(_exchange(line, method, answer))
        return answer

    def quietly(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        user: str | None = OWNER,
    ) -> Answer:
        """Send a request that only prepares others; its answer is not recorded."""
        given = dict(headers or {})
        if user is not None:
            given["X-Auth-Token"] = self.token(user)
        return self.raw(self._port, method, _full(path), given, body)

    def token(self, user: str) -> str:
        """A user's token."""
        if user not in self._tokens:
            asked = {"X-Auth-User": user, "X-Auth-Key": USERS[user]}
            token = self.raw(self._auth_port, "GET", "/auth/v1.0", asked, None).header("X-Auth-Token")
            assert token is not None, f"no token for {user}"
            self._tokens[user] = token
        return self._tokens[user]

    def raw(self, port: int, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """One request on a connection of its own."""
        connection = _Connection(self._host, port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            found = tuple(response.getheaders())
            return Answer(response.status, response.reason, found, response.read())

    def clear(self) -> None:
        """Delete everything in the owner's account, and its metadata; it has had a container then."""
        self.quietly("PUT", "/cleared")
        keys = [name for name, _ in self.quietly("HEAD", "").headers if name.lower().startswith("x-account-meta-")]
        removed = {f"X-Remove-{key[2:]}": "x" for key in keys}
        self.quietly("POST", "", removed | {"X-Account-Access-Control": ""})
        for container in self._names(""):
            for name in self._names(f"/{quote(container)}"):
                self.quietly("DELETE", f"/{quote(container)}/{quote(name)}")
            self.quietly("DELETE", f"/{quote(container)}")

    def _names(self, path: str) -> list[str]:
        answer = self.quietly("GET", f"{path}?format=json")
        return [entry["name"] for entry in json.loads(answer.body)] if answer.status == 200 else []


class _Connection(http.client.HTTPConnection):
    """Sends a path's characters as they are, one byte each."""

    def _encode_request(self, request: str) -> bytes:
        return request.encode("latin-1")


def _full(path: str) -> str:
    if path.startswith("//"):
        return path[1:]
    return path if path.startswith("/v1") else ACCOUNT + path


def _exchange(request: str, method: str, answer: Answer) -> Exchange:
    headers = {}
    for name, value in answer.headers:
        key = name.lower()
        if key in _DROPPED or (key == "content-length" and _length_says_nothing(method, answer)):
            continue
        of_manifest = key == "x-manifest-etag" or (key == "etag" and "multipart-manifest=get" in request)
        headers[key] = "<etag>" if of_manifest else "<later>" if _LATER.fullmatch(key) else _header_value(key, value)
    found = Exchange(
        _replace_words(request), f"{answer.status} {answer.reason}", dict(sorted(headers.items())), _body(answer)
    )
    return _without_digests(found) if MANIFESTED in f"{request} {found.body}" else found


def _without_digests(found: Exchange) -> Exchange:
    headers = {name: _DIGEST.sub("<digest>", value) for name, value in found.headers.items()}
    return Exchange(_DIGEST.sub("<digest>", found.request), found.status, headers, _DIGEST.sub("<digest>", found.body))


def _header_value(key: str, value: str) -> str:
    if key in _SETS:
        return ", ".join(sorted(part.strip() for part in value.split(",")))
    if key == "x-auth-token-expires":
        return "<seconds>"
    return _replace_words(value)


def _length_says_nothing(method: str, answer: Answer) -> bool:
    """Whether Content-Length says nothing: it follows from other differences, or is a 0 that HTTP does not require."""
    kind = answer.header("Content-Type") or ""
    worded = "json" in kind or kind.startswith("text/html") or "multipart" in kind
    return worded or answer.status in (204, 304) or answer.status >= 400


def _body(answer: Answer) -> str:
    kind = answer.header("Content-Type") or ""
    if len(answer.body) > 4096:
        return f"{len(answer.body)} bytes"
    if kind.startswith("application/json") and answer.body:
        with contextlib.suppress(ValueError):
            return _replace_words(json.dumps(_comparable(json.loads(answer.body)), sort_keys=True))
    if b"<html>" in answer.body and (b"<table" in answer.body or b"Web Listing Disabled" in answer.body):
        title = re.findall(rb"<title>(.*?)</title>", answer.body)
        return _replace_words(b" ".join([*title, *re.findall(rb'href="(.*?)"', answer.body)]).decode("latin-1"))
    text = answer.body.decode("utf-8", "backslashreplace")
    spaces_while_at_work = text.lstrip().startswith("Number ")  # a bulk request's, to keep its connection
    return _replace_words(text.lstrip() if spaces_while_at_work else text)


def _comparable(found: object) -> object:
    """A listing without what containers report later; a report with its errors in order."""
    if isinstance(found, list):
        return [_comparable_entry(entry) for entry in found]
    if isinstance(found, dict) and "Errors" in found:
        return {**found, "Errors": sorted(found["Errors"])}
    return found


def _comparable_entry(entry: dict[str, object]) -> dict[str, object]:
    said_later = {"count": 0, "bytes": 0} if "count" in entry else {}
    of_manifest = {"hash": "<etag>"} if "slo_etag" in entry else {}  # a manifest holds times
    return entry | said_later | of_manifest


def _replace_words(text: str) -> str:
    for pattern, word in _WORDS:
        text = pattern.sub(word, text)
    return text
