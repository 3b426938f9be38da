"""Excludes an agent's own deliveries to the collector from its capture. Otherwise it would record what it sends, and
send that again.

Excluded are all packets to and from the collector's port at each address of the collector's name. Names are resolved
again before every new connection, so a collector that moves is followed. On the collector's own host, its port is
excluded at all addresses of the host if the collector listens on all of them: other agents' deliveries arrive there. A
service that shares the collector's address *and* port (behind one proxy) is excluded with it.

Limits: if this host translates the collector's address (DNAT), packets show another address and are recorded.
"""

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from urllib.parse import urlsplit

from tracer import _capture

Endpoint = tuple[IPv4Address | IPv6Address, int]
"""An address and a TCP port."""
LISTENING = "0A"
"""TCP_LISTEN, as `/proc/net/tcp` writes it. Source: proc_net_tcp in the kernel's documentation."""
PORTS = {"http": 80, "https": 443}
TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))


class OwnDeliveries:
    """The endpoints at which a collector takes an agent's deliveries; safe to call from several threads."""

    def __init__(self, url: str, endpoints_of: Callable[[str], frozenset[Endpoint]] | None = None) -> None:
        self._url, self._endpoints_of = url, endpoints_of or collector_endpoints
        self._lock = threading.Lock()
        self._exclude: Callable[[list[Endpoint]], None] | None = None
        self.endpoints: frozenset[Endpoint] = frozenset()
        self.look_up()

    def attach(self, exclude: Callable[[list[Endpoint]], None]) -> None:
        """From now on, pass each change to `exclude`, which returns when the capture excludes these endpoints."""
        with self._lock:
            self._exclude = exclude

    def look_up(self, url: str = "") -> None:
        """Resolve the collector's name before a new connection, at `url` if it has moved. Earlier addresses stay
        excluded."""
        self._url = url or self._url
        self.add(self._endpoints_of(self._url))

    def add(self, found: Iterable[Endpoint]) -> None:
        """Exclude these endpoints, too."""
        with self._lock:
            if self.endpoints >= set(found):
                return
            self.endpoints |= set(found)
            if self._exclude is not None:
                self._exclude(sorted(self.endpoints, key=str))


def collector_endpoints(url: str) -> frozenset[Endpoint]:
    """Where the collector at a URL takes connections, as this host's packets show it; empty if its name is not known.

    Arguments: `url`, one that `tracer.shipping.check_url` accepts.
    """
    parsed = urlsplit(url)
    port = parsed.port or PORTS[parsed.scheme]
    try:
        found = socket.getaddrinfo(parsed.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return frozenset()
    addresses = {ipaddress.ip_address(str(sockaddr[0]).partition("%")[0]) for *_, sockaddr in found}
    mine = set(_capture.host_addresses())
    if any(address in mine or address.is_loopback for address in addresses) and _listens_everywhere(port):
        addresses |= mine
    return frozenset((address, port) for address in addresses)


def _listens_everywhere(port: int) -> bool:
    """Whether a socket of this host listens on the port at all addresses."""
    for table in TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state = line.split()[:4]
            address, _, number = local.partition(":")
            if state == LISTENING and int(number, 16) == port and not int(address, 16):
                return True
    return False
