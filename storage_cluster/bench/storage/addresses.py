"""Where a URL leads."""

import socket
from typing import cast
from urllib.parse import urlsplit

from storage_cluster.bench.engine.connection import Endpoint
from storage_cluster.errors import NotRunningError
from tracer.secret_rules import without_secrets


def resolve(url: str) -> Endpoint:
    """Where a URL leads. Raises: NotRunningError."""
    parts, shown = urlsplit(url), without_secrets(url)
    if parts.scheme != "http" or not parts.hostname:
        raise NotRunningError(f"{shown} is no http:// URL", "TLS is not supported; give the address behind it")
    try:
        port = parts.port or 80
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        raise NotRunningError(f"{shown} leads nowhere ({error})", "check the address") from None
    return Endpoint(found[0][0], cast(tuple[str | int, ...], found[0][4]))
