"""Checks of requests that write an object: names, lengths, metadata, type, expiry.

Source: Swift API, "Create or replace object"; swift.common.constraints. Wording and order of checks as observed in
Swift 2.30.
"""

import mimetypes
import time

from storage_cluster.servers.http import limits
from storage_cluster.servers.http.messages import PLAIN, Call, Refusal
from storage_cluster.servers.http.values import is_true
from storage_cluster.servers.object.expiry import timestamp_text
from storage_cluster.servers.proxy.version_names import as_clients_know


def check_put(call: Call, name: str) -> None:
    """Raises: Refusal (400, 411, 413) for a PUT that no object may be made with."""
    _check_framing(call)
    name = as_clients_know(name)
    limits.check_name("Object", name, limits.OBJECT_NAME_MAX_LEN, PLAIN)
    if call.headers.get("If-None-Match", "*").strip() != "*":
        raise Refusal(400, "If-None-Match only supports *", PLAIN)
    settle_type(call, name)
    limits.check_metadata(call.headers, "object")
    apply_expiry(call)


def check_post(call: Call) -> None:
    """Raises: Refusal (400) for a POST with metadata that no object may have."""
    limits.check_metadata(call.headers, "object")
    apply_expiry(call)
    if not call.headers.get("Content-Type"):
        call.headers.popall("Content-Type", None)


def apply_expiry(call: Call) -> None:
    """Turn X-Delete-After into X-Delete-At, which it overrides. Raises: Refusal (400) for what is no moment to come."""
    now_s = int(time.time())
    after, at = call.headers.get("X-Delete-After"), call.headers.get("X-Delete-At")
    if after is not None:
        due_s = now_s + _integer(after, "X-Delete-After")
        if due_s <= now_s:
            raise Refusal(400, "X-Delete-After in past", PLAIN)
    elif at is not None:
        due_s = _integer(at, "X-Delete-At")
        if due_s <= now_s:
            raise Refusal(400, "X-Delete-At in past", PLAIN)
    else:
        return
    call.headers.popall("X-Delete-After", None)
    call.headers["X-Delete-At"] = timestamp_text(due_s)


def wire_bytes(text: str) -> bytes:
    """As bytes on the wire."""
    return text.encode("utf-8", "surrogateescape")


def _check_framing(call: Call) -> None:
    coding = call.headers.get("Transfer-Encoding", "")
    if coding and coding.lower() != "chunked":
        raise Refusal(400, "Invalid Transfer-Encoding header value", PLAIN)
    if not call.body.has_framing:
        raise Refusal(411, "Missing Content-Length header.", PLAIN)
    if call.body.length is not None and call.body.length > limits.FILE_MAX_BYTES:
        raise Refusal(413, "Your request is too large.", PLAIN)


def settle_type(call: Call, name: str) -> None:
    """Guess the type where none is given, or where the client wants a guess. Raises: Refusal (400)."""
    if is_true(call.headers.get("X-Detect-Content-Type")) or not call.headers.get("Content-Type"):
        call.headers["Content-Type"] = mimetypes.guess_type(name)[0] or "application/octet-stream"
    content_type = call.headers["Content-Type"]
    try:
        wire_bytes(content_type).decode("utf-8")
    except UnicodeDecodeError:
        raise Refusal(400, "Invalid Content-Type", PLAIN) from None


def _integer(text: str, header: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Refusal(400, f"Non-integer {header}", PLAIN) from None
