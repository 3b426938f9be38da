"""What the index distinguishes connections by: the service that each leads to, and the processes that own its ends.

A *kind* is a combination of service, client's process and server's process. There are few of them, however many
connections, so a hop needs one number for all three. Where there are too many, the processes of the rarest are counted
together (`OTHER_PROCESS`). A process goes by its name and, if that is not the same, its container, pod or unit; not by
its pid, for the workers of a server are one row.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from collector.hops.owner_words import SIDES, owner_group
from collector.queries.timeline.places import Places
from collector.services.service_names import OF_CONNECTIONS, ServiceNames
from collector.trace.arrow import numbers
from collector.trace.reading import Trace
from collector.trace.time_columns import Int64Array

MOST_SERVICES = 48
"""At most so many services are distinguished; hops of rarer ones are in `OTHER_SERVICE`."""
OTHER_SERVICE = "other"
MOST_PROCESSES = 64
"""As `MOST_SERVICES`."""
OTHER_PROCESS = "others"
UNKNOWN_PROCESS = "unknown"
MOST_KINDS = 1024
MOST_KEYS = 1 << 24
"""Of kinds times pairs of hosts: as many places has the table by which pairs are numbered."""
GROUPED_BY = ("process", "user", "unit", "container", "pod")
"""Columns of an owner by which processes are distinguished here."""
_APART = "\0"


class ConnectionKinds(Struct, frozen=True):
    """The kinds of a trace's connections."""

    services: tuple[str, ...]
    processes: tuple[str, ...]  # none if no owner is known
    service: NDArray[np.uint8]  # of each kind, as the next two
    client_process: NDArray[np.uint8]
    server_process: NDArray[np.uint8]
    connections: Places
    of_connection: NDArray[np.uint16]  # the last for those that are not in the table

    def __len__(self) -> int:
        return len(self.service)

    @classmethod
    def read(cls, trace: Trace, known: ServiceNames, hosts_count: int) -> "ConnectionKinds":
        """From the table `connections`."""
        owners = [f"{side}_{name}" for side in SIDES for name in GROUPED_BY]
        table = trace.read("connections", ["connection_id", *OF_CONNECTIONS, *owners])
        services, service = _services(table, known)
        processes, process = _processes(table)
        of_all = np.stack([np.append(service, len(services) - 1), *(np.append(each, UNKNOWN) for each in process)])
        kinds, of_connection = _kinds(of_all, services, most_kinds(hosts_count))
        ids = numbers(table["connection_id"])
        return cls(services, processes, *kinds, Places(ids), of_connection)

    def of(self, connection_ids: Int64Array) -> NDArray[np.uint16]:
        """The kind of each hop's connection."""
        return np.asarray(self.of_connection[self.connections.of(connection_ids)])


OTHER, UNKNOWN = 0, 1
"""Places in `ConnectionKinds.processes`."""


def most_kinds(hosts_count: int) -> int:
    """How many kinds there may be beside so many hosts."""
    return min(MOST_KINDS, MOST_KEYS // (hosts_count + 1) ** 2)


def _services(table: pa.Table, known: ServiceNames) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The services, and that of each connection."""
    place, names = known.of_connections(table)
    unique, of_name = np.unique(np.array(names or [""], dtype=str), return_inverse=True)
    kept, code = _most_frequent(of_name[place] if len(place) else np.zeros(0, np.int64), len(unique), MOST_SERVICES)
    return (*(str(unique[each]) for each in kept), OTHER_SERVICE), code


def _processes(table: pa.Table) -> tuple[tuple[str, ...], list[NDArray[np.int64]]]:
    """The processes, and those of each connection at its client and at its server."""
    sides = [_owner_groups(table, side) for side in SIDES]
    names = sorted({name for _, texts in sides for name in texts if name})
    if not names:
        return (), [np.full(table.num_rows, UNKNOWN) for _ in SIDES]
    number = {name: at for at, name in enumerate(names)} | {"": -1}
    found = [np.array([number[name] for name in texts] or [-1])[place] for place, texts in sides]
    both = np.concatenate(found)
    kept, code = _most_frequent(both[both >= 0], len(names), MOST_PROCESSES)
    codes = np.full(len(both), UNKNOWN)
    codes[both >= 0] = np.where(code == len(kept), OTHER, code + 2)
    return (OTHER_PROCESS, UNKNOWN_PROCESS, *(names[each] for each in kept)), np.split(codes, 2)


def _owner_groups(table: pa.Table, side: str) -> tuple[NDArray[np.int64], list[str]]:
    """Places in a list of texts, and that list: what the owner of each connection's end goes by, "" if not known."""
    columns = [pc.cast(table[f"{side}_{name}"], pa.string()) for name in GROUPED_BY]
    joined = pc.binary_join_element_wise(*columns, _APART, null_handling="replace", null_replacement="")
    if isinstance(joined, pa.ChunkedArray):
        joined = joined.combine_chunks()
    coded = pc.dictionary_encode(joined)
    rows: list[dict[str, Any]] = [
        dict(zip(GROUPED_BY, text.split(_APART), strict=True)) for text in coded.dictionary.to_pylist()
    ]
    return np.asarray(coded.indices.to_numpy(zero_copy_only=False), np.int64), [owner_group(row) for row in rows]


def _most_frequent(values: NDArray[Any], count: int, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The most frequent of values below `count`, ascending; and each value's place among them, or their number."""
    tally = np.bincount(values, minlength=count)
    kept = np.sort(np.argsort(-tally, kind="stable")[:most])
    code = np.full(count, len(kept))
    code[kept] = np.arange(len(kept))
    return kept, code[values]


def _kinds(
    of_all: NDArray[np.int64], services: Sequence[str], most: int
) -> tuple[tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]], NDArray[np.uint16]]:
    """Service and processes of each kind; and the kind of each connection, of which `of_all` has them as rows."""
    merged = _merge_rare_kinds(of_all, most - len(services))
    kinds, of_connection = np.unique(merged, axis=1, return_inverse=True)
    service, client, server = kinds.astype(np.uint8)
    return (service, client, server), of_connection.reshape(-1).astype(np.uint16)


def _merge_rare_kinds(of_all: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """The same with at most so many combinations, beside those of a service whose processes are not distinguished."""
    _, place, counts = np.unique(of_all, axis=1, return_inverse=True, return_counts=True)
    if len(counts) <= most:
        return of_all
    is_rare = np.ones(len(counts), bool)
    is_rare[np.argsort(-counts, kind="stable")[: max(0, most)]] = False
    merged = of_all.copy()
    merged[1:, is_rare[place.reshape(-1)]] = OTHER
    return merged
