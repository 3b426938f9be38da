"""Where a container's changes shall be sent, `X-Container-Sync-To`: kept and shown, with its key; nothing is sent.

Without a configuration Swift takes addresses on the host itself only, and forgets those of realms.

Source: Swift, "Container to Container Synchronization"; swift.common.utils (`validate_sync_to`).
"""

from urllib.parse import urlparse

from storage_cluster.servers.http.messages import Refusal

SYNC_TO = "X-Container-Sync-To"
_HOST = "127.0.0.1"


def clean_sync_to(text: str) -> str:
    """The address to keep, "" for none. Raises: Refusal (400) for one that Swift would not send to."""
    address = text.rstrip("/")
    if not address or address.startswith("//"):
        return ""
    parts = urlparse(address)
    if parts.scheme not in ("http", "https"):
        raise Refusal(400, f'Invalid scheme {parts.scheme!r} in {SYNC_TO}, must be "//", "http", or "https".')
    if not parts.path:
        raise Refusal(400, f"Path required in {SYNC_TO}")
    if parts.params or parts.query or parts.fragment:
        raise Refusal(400, f"Params, queries, and fragments not allowed in {SYNC_TO}")
    if parts.hostname != _HOST:
        raise Refusal(400, f"Invalid host {parts.hostname!r} in {SYNC_TO}")
    return address
