"""The columns of `connections` that say who owns each end: from what the agents of the two hosts state.

An agent states an owner for the addresses and ports that its own host sees, so behind a NAT each end is looked up as
its host knows it. An end that is no captured host's may be a container's, whose owner the agent of its host states,
too: of an end without a host the statement of a host counts that saw the connection, unless another one states
something else. Ports are used again: where several connections of a partition have the same ones, a statement belongs
to the one during which it was made, by the host's own clock.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from collector.capture_files.owners import End, Owners, Statement
from collector.capture_files.records import Columns
from collector.trace.schema import CONNECTIONS, OWNER_FIELDS

SIDES = ("client", "server")

Ends = tuple[str, End, End]
"""A host ("" if it is not captured), and a connection's local and remote end there."""
Times = tuple[int, int]


def owner_columns(
    owners: Mapping[str, Owners],
    connections: Mapping[str, pa.Array],
    events: Columns,
    connection_id: NDArray[np.int64],
    hosts: Sequence[str],
) -> dict[str, pa.Array]:
    """The columns, for the columns of connections; none if no agent states anything.

    Arguments: `owners` by host; `events` and the `connection_id` of each; names of `hosts` by number.
    """
    if not owners:
        return {}
    ids = connections["connection_id"].to_pylist()
    columns: dict[str, pa.Array] = {}
    for side, other in (SIDES, SIDES[::-1]):
        ends = _of_containers(_ends(connections, side, other), owners, ids, events, connection_id, hosts)
        wanted = [place for place, end in enumerate(ends) if end[0] in owners and end[1:] in owners[end[0]].ends]
        times = Counter(ends[place] for place in wanted)
        several = [place for place in wanted if times[ends[place]] > 1]
        seen = _times({(ids[place], ends[place][0]) for place in several}, events, connection_id, hosts)
        found: list[Statement | None] = [None] * len(ids)
        begun = connections["client_isn"].is_valid().to_pylist()
        for place in wanted:
            host, local, remote = ends[place]
            statements = owners[host].ends[local, remote]
            span = seen.get((ids[place], host))
            found[place] = _statement_of(statements, span, has_begin=begun[place])
        columns |= _columns(side, found)
    return columns


def _ends(connections: Mapping[str, pa.Array], side: str, other: str) -> list[Ends]:
    """Each connection's host, local and remote end on one side."""
    texts = {
        name: connections[name].to_pylist()
        for each in SIDES
        for name in (f"{each}_host", f"{each}_addr", f"{each}_port")
    }
    if side == "server":  # a NAT shows it other addresses
        for each in SIDES:
            for what in ("addr", "port"):
                changed = connections[f"translated_{each}_{what}"].to_pylist()
                own = texts[f"{each}_{what}"]
                texts[f"{each}_{what}"] = [
                    new if new is not None else old for new, old in zip(changed, own, strict=True)
                ]
    local = zip(texts[f"{side}_addr"], texts[f"{side}_port"], strict=True)
    remote = zip(texts[f"{other}_addr"], texts[f"{other}_port"], strict=True)
    return list(zip((host or "" for host in texts[f"{side}_host"]), local, remote, strict=True))


def _of_containers(
    ends: Sequence[Ends],
    owners: Mapping[str, Owners],
    ids: Sequence[int],
    events: Columns,
    connection_id: NDArray[np.int64],
    hosts: Sequence[str],
) -> list[Ends]:
    """The ends, those without a host with the host that saw their connection and states who owns them."""
    stated: dict[tuple[End, End], list[str]] = {}
    for host, those in owners.items():
        for pair in those.ends:
            stated.setdefault(pair, []).append(host)
    places = [place for place, (host, *pair) in enumerate(ends) if not host and tuple(pair) in stated]
    seen = _times(
        {(ids[place], host) for place in places for host in stated[ends[place][1:]]}, events, connection_id, hosts
    )
    found = list(ends)
    for place in places:
        _, local, remote = ends[place]
        having = [host for host in stated[local, remote] if (ids[place], host) in seen]
        said = [{statement.owner for statement in owners[host].ends[local, remote].values()} for host in having]
        if said and all(each == said[0] for each in said):
            found[place] = (having[0], local, remote)
    return found


def _times(
    wanted: set[tuple[int, str]], events: Columns, connection_id: NDArray[np.int64], hosts: Sequence[str]
) -> dict[tuple[int, str], Times]:
    """When these hosts first and last saw these connections."""
    if not wanted:
        return {}
    rows = np.flatnonzero(np.isin(connection_id, [number for number, _ in wanted]))
    found: dict[tuple[int, str], Times] = {}
    for number, host, at in zip(
        connection_id[rows].tolist(), events["host"][rows].tolist(), events["host_ns"][rows].tolist(), strict=True
    ):
        key = (number, hosts[host])
        first, last = found.get(key, (at, at))
        found[key] = (min(first, at), max(last, at))
    return found


def _statement_of(statements: Mapping[int, Statement], span: Times | None, *, has_begin: bool) -> Statement | None:
    """The last statement that may be of a connection; `span`, when it was seen, if others have the same ports."""
    if span is None:
        return statements[max(statements)]
    first, last = span
    fit = [at for at in statements if at <= last and (at >= first or not has_begin)]
    return statements[max(fit)] if fit else None


def _columns(side: str, found: Sequence[Statement | None]) -> dict[str, pa.Array]:
    columns = {}
    for name, attribute in OWNER_FIELDS.items():
        values = [None if each is None else getattr(each.owner, attribute) for each in found]
        columns[f"{side}_{name}"] = pa.array(values, _plain(f"{side}_{name}"))
    evidence = [None if each is None else str(each.evidence) for each in found]
    return columns | {f"{side}_owner_evidence": pa.array(evidence, pa.string())}


def _plain(column: str) -> pa.DataType:
    kind = CONNECTIONS.field(column).type
    return pa.string() if pa.types.is_dictionary(kind) else kind
