"""Names the ends of connections and the places of services in texts, also for hosts that were not captured.

A host that was not captured has no name in a trace, so texts describe it in words. All texts use these functions.
"""

UNCAPTURED = "a host that was not captured"


def end_name(host: str | None, address: str | None = None) -> str:
    """`storage1`; or the address of a host that was not captured; or `UNCAPTURED`."""
    return host or address or UNCAPTURED


def service_at(service: str | None, host: str | None) -> str:
    """`swift-object on storage1`; without a host or a service, the one that is known; `app1:8000` already names its
    host."""
    if not service:
        return end_name(host)
    if host and service.startswith(f"{host}:"):  # named HOST:PORT for lack of evidence
        return service
    return f"{service} on {end_name(host)}"


def service_name(service: str | None) -> str:
    """A service in a sentence; `a server` if even its port is unknown."""
    return service or "a server"
