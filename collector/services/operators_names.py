"""Reports an operator's names of servers that no capture shows, since nothing else would reveal the mistake.

A server is a host (its name in the trace, else its address) and a port. Servers that share one of the two are
suggested.
"""

from collections.abc import Iterable, Mapping, Sequence

from collector.capture_files.records import Severity
from collector.services.servers import Server
from collector.services.service_names import host_and_port, place_of
from collector.trace.model import CounterInfo

NAME_OF_NOTHING = "name_of_no_server"
MOST_SHOWN = 4
"""At most so many servers are suggested."""


def names_of_hosts(names: Iterable[tuple[str, str]], renamed: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """`names` by what hosts are called now; `renamed`, that by what their files call them."""
    places = ((place_of(place), name) for place, name in names)
    return tuple((host_and_port(renamed.get(host, host), port), name) for (host, port), name in places)


def names_of_nothing(names: Iterable[tuple[str, str]], servers: Sequence[Server]) -> list[CounterInfo]:
    """A notice for each of `names` (`HOST:PORT` and name) that names none of `servers`."""
    known = {each.key for each in servers}
    found = []
    for place, name in names:
        host, port = place_of(place)
        if (host, port) in known:
            continue
        near = [each for each in servers if each.host == host or each.port == port]
        shown = ", ".join(host_and_port(*each.key) for each in near[:MOST_SHOWN])
        more = f" and {len(near) - MOST_SHOWN} more" if len(near) > MOST_SHOWN else ""
        remedy = f"--name {place}={name} names no server of this trace"
        remedy += f"; there are {shown}{more}" if near else ": none has that host or port"
        found.append(CounterInfo(None, NAME_OF_NOTHING, Severity.NOTICE, 1, remedy))
    return found
