"""How texts name the end of a connection, and where a service is: by the host if it was captured, else as is known.

A host that was not captured has no name in a trace, so a text that formats one says so in words. Every text that may
meet such a host takes its words from here.
"""

UNCAPTURED = "a host that was not captured"


def end_name(host: str | None, address: str | None = None) -> str:
    """`storage1`, the address of a host that was not captured, or that it was not."""
    return host or address or UNCAPTURED


def service_at(service: str | None, host: str | None) -> str:
    """`swift-object on storage1`; without a host or a service, what is known of them; `app1:8000`
    says its host itself."""
    if not service:
        return end_name(host)
    if host and service.startswith(f"{host}:"):  # named by its place, as nothing shows what it is
        return service
    return f"{service} on {end_name(host)}"


def service_name(service: str | None) -> str:
    """A service in a sentence; one whose port nobody knows is a server."""
    return service or "a server"
