"""Names of servers by port alone, as a trace has them where an operator named ports."""

from collections.abc import Mapping

from collector.services.service_names import ServiceNames
from collector.trace.model import ServiceInfo


def named_ports(ports: Mapping[int, str]) -> tuple[ServiceInfo, ...]:
    """As `TraceInfo.services` has them."""
    return tuple(ServiceInfo("", port, name) for port, name in ports.items())


def names_of_ports(ports: Mapping[int, str]) -> ServiceNames:
    """As `build_exchanges` takes them."""
    return ServiceNames(named_ports(ports))
