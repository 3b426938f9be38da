"""Detects writes that went to a handoff: a server that stands in for one to which the data belongs (a primary).

A store with several copies writes to all primaries of a partition at once, and calls another server only after one of
these refused, did not answer, or failed (Swift: `proxy-server` iterates over the ring's primaries, then its handoffs).
So a write went to a handoff if it began *after* another one of the same parent, for the same object, had failed: a
connection refused or never answered, an error, or an answer that never came. Each failure causes one substitute, the
last to begin.

The role of a device for a place (a partition of a container) also holds for other requests: after errors, a proxy omits
a server without calling it again. Suppose that a client's writes went to the same servers each time, whatever the
place, before any failure (as many servers as copies). Then a later write without one of them left it out, if no other
call to that server succeeds meanwhile.

    SYN to storage1, storage2, storage3 ─ RST of storage3 ─ SYN to storage4: storage4 stands in for storage3

With ring files (`collector.services.rings`) nothing is inferred: they list the primaries.

Limits: without ring files, a server that is left out during the whole capture without a failed attempt is not noticed.
If many requests run at once, a refused connection is assigned to the request that continued soonest after it.

Source: Swift 2.30, swift/proxy/controllers/base.py (`make_requests`, `NodeIter`), obj.py (`_connect_put_node`).
"""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from collector.services.device_calls import Attempt, Device, Group, Groups, Server
from collector.services.services import PARTS, target_patterns

BURST_NS = 50_000_000
"""Parallel calls of a request begin within this time of each other, a substitute within this time of the failure."""
SHORTEST_TIMEOUT_NS = 2 * BURST_NS
"""Nobody gives up a connection sooner (Swift's `conn_timeout` is 0.5 s)."""
LEAST_PLACES = 5
"""Fewest places that a client wrote to before any failure, to infer the servers to which it always writes."""
LONGEST_CHAIN = 6
"""Longest chain of substitutes that fail, too."""
FAILED = {
    **dict.fromkeys(("client_host", "server"), pl.String),
    "server_port": pl.UInt16,
    **dict.fromkeys(("began_ns", "refused_ns"), pl.Int64),
}
"""Columns of connections never established; `refused_ns` is null for those without any answer."""
STAND_INS = {"exchange_id": pl.Int64, "meant_for": pl.String}


def target_parts(exchanges: pl.DataFrame) -> pl.DataFrame:
    """`exchange_id` and the parts of its target (`PARTS`, null if missing); only for services with known targets."""
    found = [pl.DataFrame(schema={"exchange_id": pl.Int64} | dict.fromkeys(PARTS, pl.String))]
    service = exchanges["service"].cast(pl.String)
    for name, pattern in target_patterns().items():
        mine = exchanges.filter(service == name).select("exchange_id", "target")
        groups = mine["target"].str.extract_groups(pattern).struct
        parts = {part: groups.field(part) for part in PARTS if f"<{part}>" in pattern}
        found.append(mine.select("exchange_id", **parts))
    return pl.concat(found, how="diagonal")


def stand_ins(attempts: Iterable[pl.DataFrame], failed: pl.DataFrame) -> pl.DataFrame:
    """Writes to handoffs, and the server for which each was intended (columns `STAND_INS`).

    Arguments: all requests to devices (columns `ATTEMPTS`), with those of one parent in one frame; failed connections
    (columns `FAILED`).
    Cost: a sort of the attempts; for each failed connection, a search among those that began around it. Memory: as
    `Groups`, with the groups that had a failure, or a failed connection near them, as objects.
    """
    groups = Groups(attempts)
    first_failure: dict[str, int] = {}
    failures = [(group.client, one.begin_ns) for group in groups.at(groups.with_failures()) for one in group.failures]
    for client, at in [*failures, *failed.select("client_host", "began_ns").drop_nulls().rows()]:
        first_failure[client] = min(first_failure.get(client, at), at)
    _assign_failures(groups, failed)
    known = _known_primaries(groups, first_failure)
    found = dict(
        pair for group in groups.changeable() for pair in _substitutes(group, known.get(group.where, frozenset()))
    )
    found |= dict(_writes_without_failure(groups, known, found))
    found |= dict(_never_without(groups, first_failure, found))
    return pl.DataFrame(list(found.items()), STAND_INS, orient="row")


def _assign_failures(groups: Groups, failed: pl.DataFrame) -> None:
    """Assign each failed connection to the group of its client whose calls are closest to it in time.

    First one to each group, then the rest: a second failed server, or a failed substitute.
    """
    known = failed.drop_nulls(["client_host", "server"])
    left, services = dict(enumerate(known.rows(named=True))), groups.services()
    near = [np.empty(0, np.int64)]
    for (client,), rows in known.group_by("client_host"):
        near.append(groups.near(str(client), rows["began_ns"].sort().to_numpy(), BURST_NS))
    mine = groups.at(np.unique(np.concatenate(near)))
    for _ in range(LONGEST_CHAIN):
        moments = _moments(mine)
        pairs = []
        for number, row in left.items():
            for service in services.get(row["server_port"], ()):
                found = _near(moments.get((row["client_host"], service), []), row)
                pairs += [(distance, number, place) for distance, place in found]
        given: set[int] = set()
        for _, number, place in sorted(pairs):
            if number in left and place not in given and _add_failure(mine[place], left[number]):
                del left[number]
                given.add(place)
        if not given:
            return


def _add_failure(group: Group, row: Mapping[str, Any]) -> bool:
    """Add a failed connection to a group if it may belong to it; returns whether it may."""
    began, server = row["began_ns"], (row["server"], row["server_port"])
    over_ns = _earliest_end_ns(row)
    if not group.may_include(began, over_ns, server):
        return False
    insort(group.attempts, Attempt(None, server, "", began, over_ns), key=lambda one: one.begin_ns)
    return True


def _earliest_end_ns(row: Mapping[str, Any]) -> int:
    """The earliest time at which a failed connection may have been given up."""
    return int(row["began_ns"] + SHORTEST_TIMEOUT_NS if row["refused_ns"] is None else row["refused_ns"])


def _moments(groups: Sequence[Group]) -> Mapping[tuple[str, str], list[tuple[int, int]]]:
    """By client and service: the times of calls, and of possible further calls, each with its group; by time."""
    found: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for place, group in enumerate(groups):
        times = {one.begin_ns for one in group.attempts} | {one.failed_ns for one in group.failures if one.failed_ns}
        found[group.client, group.service] += [(at, place) for at in times]
    for moments in found.values():
        moments.sort()
    return found


def _near(moments: Sequence[tuple[int, int]], row: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """Groups with calls around the beginning of a failed connection: their distance in time, and their index."""
    began = row["began_ns"]
    for number in range(bisect_left(moments, (began - BURST_NS, 0)), len(moments)):
        at, place = moments[number]
        if at > began + BURST_NS:
            return
        yield abs(at - began), place


Known = Mapping[tuple[str, str], frozenset[Device]]
"""The primaries of each place of a service."""


def _known_primaries(groups: Groups, first_failure: Mapping[str, int]) -> Known:
    """The devices that were written to together before the client's first failure."""
    known: dict[tuple[str, str], frozenset[Device]] = {}
    for group in groups.writes(first_failure):
        most = len(known.get(group.where, ()))
        if len(group.attempts) > most and len(group.devices) > most:
            known[group.where] = group.devices
    return known


def _substitutes(group: Group, primaries: frozenset[Device]) -> Iterator[tuple[int, str]]:
    """The substitutes in a group with failures: as many as failed, the last to begin."""
    count = len(group.failures)
    if not group.writes or not count:
        return
    first, late = group.attempts[:-count], group.attempts[-count:]
    missed = [one.server[0] for one in first if one.failed_ns is not None]
    # What begins in the same breath as those that were asked together is one of them: the failure was another's.
    together_ns = first[-1].begin_ns - first[0].begin_ns if first else 0
    apart_ns = first[-1].begin_ns + together_ns if first else 0
    took = [
        one
        for one in late
        if one.failed_ns is None and (one.server, one.device) not in primaries and one.begin_ns >= apart_ns
    ]
    for one, meant_for in zip(took, missed, strict=False):
        if one.exchange_id is not None:
            yield one.exchange_id, meant_for


def _writes_without_failure(groups: Groups, known: Known, found: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    """Writes of groups without a failure, to servers that are known to stand in for another at that place."""
    stood_in = {
        (group.where, one.server, one.device): found[one.exchange_id]
        for group in groups.changeable()
        for one in group.attempts
        if one.exchange_id is not None and one.exchange_id in found
    }
    if not stood_in and not known:
        return
    for group in groups.writes():
        if len(group.attempts) < 2 or group.failures:
            continue
        devices, primaries = group.devices, known.get(group.where, frozenset())
        missing = sorted(name for (name, _), _ in primaries - devices) if len(primaries) == len(devices) else []
        for one in group.attempts:
            meant_for = stood_in.get((group.where, one.server, one.device))
            if meant_for is None and (one.server, one.device) not in primaries and missing:
                meant_for = missing.pop(0)
            if one.exchange_id is not None and meant_for is not None:
                yield one.exchange_id, meant_for


def _never_without(
    groups: Groups, first_failure: Mapping[str, int], found: Mapping[int, str]
) -> Iterator[tuple[int, str]]:
    """Writes without a server that all of the client's writes had used before its first failure: another device stood
    in, the last to begin of those whose server has two."""
    usual = {asked: servers for asked, servers in _servers_of_all_writes(groups, first_failure).items() if servers}
    if not usual:
        return
    history = {(*asked, server): _History() for asked, servers in usual.items() for server in servers}
    for group in groups.writes():
        for one in group.attempts if len(group.attempts) > 1 else ():
            if (group.client, group.service, one.server) in history:
                history[group.client, group.service, one.server].add(one)
    for each in history.values():
        each.sort()
    for group in groups.writes():
        servers = usual.get((group.client, group.service))
        if servers is None or len(group.attempts) < 2 or not group.servers < servers or group.failures:
            continue
        took = [one for one in group.attempts if one.failed_ns is None]
        at_ns, of = group.attempts[0].begin_ns, (group.client, group.service)
        missing = [server for server in servers - group.servers if history[*of, server].is_away(at_ns)]
        if len(missing) != 1 or len(took) != len(servers):
            continue
        called = [one.server for one in took]
        late = next((one.exchange_id for one in reversed(took) if called.count(one.server) > 1), None)
        if late is not None and not {one.exchange_id for one in took} & found.keys():
            yield late, missing[0][0]


class _History:
    """When a server failed, and when it was used; both ascending once they are sorted."""

    def __init__(self) -> None:
        self._failed_ns, self._took_ns = array("q"), array("q")

    def add(self, one: Attempt) -> None:
        """Add a call to it."""
        if one.failed_ns is None:
            self._took_ns.append(one.begin_ns)
        else:
            self._failed_ns.append(one.failed_ns)

    def sort(self) -> None:
        """Sort what was added."""
        for times in (self._failed_ns, self._took_ns):
            np.frombuffer(times, np.int64).sort()

    def is_away(self, at_ns: int) -> bool:
        """Whether it failed before, and was not used since."""
        place = bisect_right(self._failed_ns, at_ns)
        if not place:
            return False
        return bisect_right(self._took_ns, at_ns) == bisect_right(self._took_ns, self._failed_ns[place - 1])


def _servers_of_all_writes(
    groups: Groups, first_failure: Mapping[str, int]
) -> Mapping[tuple[str, str], frozenset[Server]]:
    """By client and service: the servers of all writes before the client's first failure, if they were the same each
    time at several places; else empty."""
    found: dict[tuple[str, str], frozenset[Server]] = {}
    places: dict[tuple[str, str], set[str]] = defaultdict(set)
    for group in groups.writes(first_failure):
        if len(group.attempts) < 2:
            continue
        asked, servers = (group.client, group.service), group.servers
        is_usual = found.setdefault(asked, servers) == servers and len(group.attempts) == len(servers)
        if not is_usual:
            found[asked] = frozenset()
        elif len(places[asked]) < LEAST_PLACES:
            places[asked].add(group.place)
    return {asked: servers for asked, servers in found.items() if len(places[asked]) == LEAST_PLACES}
