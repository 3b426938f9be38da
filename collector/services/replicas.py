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

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from msgspec import Struct, field

from collector.services.services import PARTS, target_patterns

WRITES = ("PUT", "POST", "DELETE")
BURST_NS = 50_000_000
"""Parallel calls of a request begin within this time of each other, a substitute within this time of the failure."""
SHORTEST_TIMEOUT_NS = 2 * BURST_NS
"""Nobody gives up a connection sooner (Swift's `conn_timeout` is 0.5 s)."""
LEAST_PLACES = 5
"""Fewest places that a client wrote to before any failure, to infer the servers to which it always writes."""
LONGEST_CHAIN = 6
"""Longest chain of substitutes that fail, too."""
Server = tuple[str, int]
"""Its host, or its address if that was not captured; its port."""
Device = tuple[Server, str]
"""A server and the name of one of its devices."""

ATTEMPTS = {
    **dict.fromkeys(("exchange_id", "parent_span_id"), pl.Int64),
    **dict.fromkeys(("client_host", "service", "method", "server", "device", "place", "thing"), pl.String),
    "server_port": pl.UInt16,
    **dict.fromkeys(("asked_ns", "begin_ns", "failed_ns"), pl.Int64),
}
"""Columns of requests to devices. `server`: its host, or address; `place`: the unit that has primaries of its own;
`thing`: the object written, without the device; `asked_ns`: when the parent's request arrived; `failed_ns`: null if the
request did not fail."""
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


def stand_ins(attempts: pl.DataFrame, failed: pl.DataFrame) -> pl.DataFrame:
    """Writes to handoffs, and the server for which each was intended (columns `STAND_INS`).

    Arguments: all requests to devices (columns `ATTEMPTS`), failed connections (columns `FAILED`).
    Cost: a sort of the attempts; for each failed connection, a search among those that began around it.
    """
    groups = _groups(attempts)
    first_failure: dict[str, int] = {}
    failures = [(group.client, one.begin_ns) for group in groups for one in group.failures]
    for client, at in [*failures, *failed.select("client_host", "began_ns").drop_nulls().rows()]:
        first_failure[client] = min(first_failure.get(client, at), at)
    _assign_failures(groups, failed)
    known = _known_primaries(groups, first_failure)
    found = dict(pair for group in groups for pair in _substitutes(group, known.get(group.where, frozenset())))
    found |= dict(_writes_without_failure(groups, known, found))
    found |= dict(_never_without(groups, first_failure, found))
    return pl.DataFrame(list(found.items()), STAND_INS, orient="row")


class _Attempt(Struct):
    exchange_id: int | None  # None if not even a connection was established
    server: Server
    device: str
    begin_ns: int
    failed_ns: int | None


class _Group(Struct):
    """The calls of one parent to devices for one object, in order of time."""

    client: str
    service: str
    place: str
    writes: bool
    asked_ns: int
    attempts: list[_Attempt] = field(default_factory=list)

    @property
    def where(self) -> tuple[str, str]:
        """The unit that has primaries of its own."""
        return self.service, self.place

    @property
    def failures(self) -> list[_Attempt]:
        """Failed attempts that another one followed."""
        last_ns = self.attempts[-1].begin_ns
        return [one for one in self.attempts if one.failed_ns is not None and one.failed_ns <= last_ns]

    @property
    def devices(self) -> frozenset[Device]:
        """All that were called."""
        return frozenset((one.server, one.device) for one in self.attempts if one.failed_ns is None)

    @property
    def servers(self) -> frozenset[Server]:
        """All that were called."""
        return frozenset(one.server for one in self.attempts if one.failed_ns is None)

    def calls_server(self, server: Server) -> bool:
        """Whether the server was called."""
        return any(one.server == server and one.failed_ns is None for one in self.attempts)

    def may_include(self, began_ns: int, over_ns: int, server: Server) -> bool:
        """Whether a failed connection may belong to this group: it explains some attempt after it."""
        later = sum(one.begin_ns >= over_ns for one in self.attempts)
        explained = sum((one.failed_ns or 0) >= over_ns for one in self.failures)
        beside = len(self.attempts) > 1 or not self.writes  # an object server's report to its one container server
        return self.asked_ns <= began_ns and later > explained and beside and not self.calls_server(server)


def _groups(attempts: pl.DataFrame) -> list[_Group]:
    found: dict[tuple[int, str, str, str], _Group] = {}
    for row in attempts.sort("begin_ns", "exchange_id").iter_rows(named=True):
        key = (row["parent_span_id"], row["service"], row["method"], row["thing"])
        if key not in found:
            writes = row["method"] in WRITES
            found[key] = _Group(row["client_host"], row["service"], row["place"], writes, row["asked_ns"])
        server = (row["server"], row["server_port"] or 0)
        found[key].attempts.append(
            _Attempt(row["exchange_id"], server, row["device"], row["begin_ns"], row["failed_ns"])
        )
    return list(found.values())


def _assign_failures(groups: list[_Group], failed: pl.DataFrame) -> None:
    """Assign each failed connection to the group of its client whose calls are closest to it in time.

    First one to each group, then the rest: a second failed server, or a failed substitute.
    """
    left = dict(enumerate(failed.drop_nulls(["client_host", "server"]).rows(named=True)))
    services: dict[int, set[str]] = defaultdict(set)
    for group in groups:
        for one in group.attempts:
            services[one.server[1]].add(group.service)
    for _ in range(LONGEST_CHAIN):
        moments = _moments(groups)
        pairs = []
        for number, row in left.items():
            for service in services[row["server_port"]]:
                near = _near(moments.get((row["client_host"], service), []), row)
                pairs += [(distance, number, place) for distance, place in near]
        given: set[int] = set()
        for _, number, place in sorted(pairs):
            if number in left and place not in given and _add_failure(groups[place], left[number]):
                del left[number]
                given.add(place)
        if not given:
            return


def _add_failure(group: _Group, row: Mapping[str, Any]) -> bool:
    """Add a failed connection to a group if it may belong to it; returns whether it may."""
    began, server = row["began_ns"], (row["server"], row["server_port"])
    over_ns = _earliest_end_ns(row)
    if not group.may_include(began, over_ns, server):
        return False
    insort(group.attempts, _Attempt(None, server, "", began, over_ns), key=lambda one: one.begin_ns)
    return True


def _earliest_end_ns(row: Mapping[str, Any]) -> int:
    """The earliest time at which a failed connection may have been given up."""
    return int(row["began_ns"] + SHORTEST_TIMEOUT_NS if row["refused_ns"] is None else row["refused_ns"])


def _moments(groups: Sequence[_Group]) -> Mapping[tuple[str, str], list[tuple[int, int]]]:
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


def _known_primaries(groups: Iterable[_Group], first_failure: Mapping[str, int]) -> Known:
    """The devices that were written to together before the client's first failure."""
    known: dict[tuple[str, str], frozenset[Device]] = {}
    for group in groups:
        early = group.attempts[-1].begin_ns < first_failure.get(group.client, 0)
        if group.writes and early and len(group.devices) > len(known.get(group.where, ())):
            known[group.where] = group.devices
    return known


def _substitutes(group: _Group, primaries: frozenset[Device]) -> Iterator[tuple[int, str]]:
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


def _writes_without_failure(groups: list[_Group], known: Known, found: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    """Writes of groups without a failure, to servers that are known to stand in for another at that place."""
    stood_in = {
        (group.where, one.server, one.device): found[one.exchange_id]
        for group in groups
        for one in group.attempts
        if one.exchange_id is not None and one.exchange_id in found
    }
    for group in groups:
        if not group.writes or group.failures or len(group.attempts) < 2:
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
    groups: Sequence[_Group], first_failure: Mapping[str, int], found: Mapping[int, str]
) -> Iterator[tuple[int, str]]:
    """Writes without a server that all of the client's writes had used before its first failure: another device stood
    in, the last to begin of those whose server has two."""
    by_client = defaultdict[tuple[str, str], list[_Group]](list)
    for group in groups:
        if group.writes and len(group.attempts) > 1:
            by_client[group.client, group.service].append(group)
    for (client, _), mine in by_client.items():
        usual = _servers_of_all_writes(mine, first_failure.get(client, 0))
        history = {server: _History.of(server, mine) for server in usual}
        for group in mine:
            took = [one for one in group.attempts if one.failed_ns is None]
            at_ns = group.attempts[0].begin_ns
            missing = [server for server in usual - group.servers if history[server].is_away(at_ns)]
            if len(missing) != 1 or group.failures or len(took) != len(usual) or not group.servers < usual:
                continue
            servers = [one.server for one in took]
            late = next((one.exchange_id for one in reversed(took) if servers.count(one.server) > 1), None)
            if late is not None and not {one.exchange_id for one in took} & found.keys():
                yield late, missing[0][0]


class _History(Struct, frozen=True):
    """When a server failed, and when it was used; both ascending."""

    failed_ns: Sequence[int]
    took_ns: Sequence[int]

    @classmethod
    def of(cls, server: Server, groups: Iterable[_Group]) -> "_History":
        mine = [one for group in groups for one in group.attempts if one.server == server]
        failed = sorted(one.failed_ns for one in mine if one.failed_ns is not None)
        return cls(failed, sorted(one.begin_ns for one in mine if one.failed_ns is None))

    def is_away(self, at_ns: int) -> bool:
        """Whether it failed before, and was not used since."""
        place = bisect_right(self.failed_ns, at_ns)
        if not place:
            return False
        return bisect_right(self.took_ns, at_ns) == bisect_right(self.took_ns, self.failed_ns[place - 1])


def _servers_of_all_writes(groups: Sequence[_Group], before_ns: int) -> frozenset[Server]:
    """The servers of all writes before a time, if they were the same each time at several places; else empty."""
    early = [group for group in groups if group.attempts[-1].begin_ns < before_ns]
    taken = {group.servers for group in early}
    if len(taken) != 1 or len({group.place for group in early}) < LEAST_PLACES:
        return frozenset()
    (servers,) = taken
    return servers if all(len(group.attempts) == len(servers) for group in early) else frozenset()
