"""The calls to devices that each request made for one object, as columns: few of them are objects at a time.

Memory: 50 bytes for each call; of the groups that `Groups.at` gave, about 1 KB each.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct, field
from numpy.typing import NDArray

from collector.trace.arrow import indices
from collector.trace.time_columns import UNSEEN, Int64Array

WRITES = ("PUT", "POST", "DELETE")
ATTEMPTS = {
    **dict.fromkeys(("exchange_id", "parent_span_id"), pl.Int64),
    **dict.fromkeys(("client_host", "service", "method", "server", "device", "place", "thing"), pl.String),
    "server_port": pl.UInt16,
    **dict.fromkeys(("asked_ns", "begin_ns", "failed_ns"), pl.Int64),
}
"""Columns of requests to devices. `server`: its host, or address; `place`: the unit that has primaries of its own;
`thing`: the object written, without the device; `asked_ns`: when the parent's request arrived; `failed_ns`: null if the
request did not fail."""
GROUPS_AT_ONCE = 1 << 12
_OF_GROUP = {"client": "client_host", "service": "service", "place": "place"}
_OF_CALL = {"server": "server", "device": "device"}

Server = tuple[str, int]
"""Its host, or its address if that was not captured; its port."""
Device = tuple[Server, str]
"""A server and the name of one of its devices."""


class Attempt(Struct):
    """A call to a device."""

    exchange_id: int | None  # None if not even a connection was established
    server: Server
    device: str
    begin_ns: int
    failed_ns: int | None


class Group(Struct):
    """The calls of one parent to devices for one object, in order of time."""

    client: str
    service: str
    place: str
    writes: bool
    asked_ns: int
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def where(self) -> tuple[str, str]:
        """The unit that has primaries of its own."""
        return self.service, self.place

    @property
    def failures(self) -> list[Attempt]:
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


class Groups:
    """All groups, numbered in the order of their first calls. Those that `at` gave may be changed: they are kept.

    Arguments: frames with the columns `ATTEMPTS`; all calls of one parent are in one of them.
    """

    def __init__(self, attempts: Iterable[pl.DataFrame]) -> None:
        self._names: dict[str, dict[Any, int]] = {name: {} for name in (*_OF_GROUP, *_OF_CALL)}
        parts = [self._part(rows) for rows in chain([pl.DataFrame(schema=ATTEMPTS)], attempts)]
        whole: dict[str, NDArray[Any]] = {}
        for name in [*parts[0]]:
            whole[name] = np.concatenate([part.pop(name) for part in parts])
        self._first = np.append(0, np.cumsum(whole.pop("count")))
        self._of_calls = {name: whole.pop(name) for name in ("exchange_id", "begin", "failed", "port", *_OF_CALL)}
        first = self._first[:-1]
        self._order = np.lexsort((self._of_calls["exchange_id"][first], self._of_calls["begin"][first]))
        self._of_groups = whole
        self._texts: dict[str, list[Any]] = {name: [*known, None] for name, known in self._names.items()}
        self._kept: dict[int, Group] = {}

    def at(self, numbers: Int64Array) -> list[Group]:
        """Some groups, which may be changed from then on."""
        new = np.array([number for number in numbers.tolist() if number not in self._kept], np.int64)
        self._kept |= dict(zip(new.tolist(), self._objects(new), strict=True))
        return [self._kept[number] for number in numbers.tolist()]

    def changeable(self) -> Iterator[Group]:
        """All groups that `at` gave."""
        return (self._kept[number] for number in sorted(self._kept))

    def writes(self, before_ns: Mapping[str, int] | None = None) -> Iterator[Group]:
        """Those that write, one after the other; not to be changed.

        Arguments: `before_ns`, by client a time before which the last call began; by default all.
        """
        chosen = self._of_groups["writes"].copy()
        if before_ns is not None:
            least = np.array([before_ns.get(client, UNSEEN) for client in self._texts["client"]], np.int64)
            chosen &= self._last_ns() < least[self._of_groups["client"]]
        chosen = chosen[self._order]
        chosen[[*self._kept]] = True
        numbers = np.flatnonzero(chosen)
        for number, group in zip(numbers.tolist(), self._objects(numbers), strict=True):
            one = self._kept.get(number, group)
            if one.writes and (before_ns is None or one.attempts[-1].begin_ns < before_ns.get(one.client, UNSEEN)):
                yield one

    def with_failures(self) -> Int64Array:
        """The numbers of groups in which a call failed before the last one began."""
        failed, of = self._of_calls["failed"], self._groups_of_calls()
        return self._numbers(of[(failed != UNSEEN) & (failed <= self._last_ns()[of])])

    def near(self, client: str, at_ns: Int64Array, within_ns: int) -> Int64Array:
        """The numbers of a client's groups of which a call began, or failed before another one, near one of these
        times, which are ascending."""
        of = self._groups_of_calls()
        found: list[NDArray[np.int32]] = []
        mine = (self._of_groups["client"] == self._names["client"].get(client, len(self._names["client"])))[of]
        for times in (self._of_calls["begin"], self._of_calls["failed"]):
            seen = times[mine]
            place = np.searchsorted(at_ns, seen - within_ns)
            is_near = np.append(at_ns, UNSEEN)[place] >= seen - within_ns
            is_near &= np.append(at_ns, UNSEEN)[place] <= seen + within_ns
            found.append(of[mine][is_near & (seen != UNSEEN)])
        return self._numbers(np.concatenate(found))

    def services(self) -> Mapping[int, set[str]]:
        """Which services were called at each port."""
        pairs = np.unique(
            self._of_calls["port"].astype(np.int64) << 32 | self._of_groups["service"][self._groups_of_calls()]
        )
        found: dict[int, set[str]] = defaultdict(set)
        for pair in pairs.tolist():
            found[pair >> 32].add(self._texts["service"][pair & 0xFFFFFFFF])
        return found

    def _groups_of_calls(self) -> NDArray[np.int32]:
        return np.repeat(np.arange(len(self._order), dtype=np.int32), np.diff(self._first))

    def _last_ns(self) -> Int64Array:
        """When the last call of each group began."""
        return self._of_calls["begin"][self._first[1:] - 1]

    def _numbers(self, groups: NDArray[np.int32]) -> Int64Array:
        """The numbers of groups, ascending, by their places in the columns."""
        chosen = np.zeros(len(self._order), dtype=np.bool_)
        chosen[groups] = True
        return np.flatnonzero(chosen[self._order])

    def _objects(self, numbers: Int64Array) -> Iterator[Group]:
        for begin in range(0, len(numbers), GROUPS_AT_ONCE):
            of = self._order[numbers[begin : begin + GROUPS_AT_ONCE]]
            count = self._first[of + 1] - self._first[of]
            end = np.cumsum(count)
            calls = np.repeat(self._first[of] + count - end, count) + np.arange(end[-1])
            columns = {name: values[calls].tolist() for name, values in self._of_calls.items()}
            servers, devices = self._texts["server"], self._texts["device"]
            attempts = [
                Attempt(
                    number, (servers[server], port), devices[device], begin_ns, None if failed == UNSEEN else failed
                )
                for number, server, port, device, begin_ns, failed in zip(
                    *(columns[name] for name in ("exchange_id", "server", "port", "device", "begin", "failed")),
                    strict=True,
                )
            ]
            texts = ([self._texts[name][code] for code in self._of_groups[name][of].tolist()] for name in _OF_GROUP)
            values = (self._of_groups[name][of].tolist() for name in ("writes", "asked"))
            for client, service, place, writes, asked_ns, start, stop in zip(
                *texts, *values, (end - count).tolist(), end.tolist(), strict=True
            ):
                yield Group(client, service, place, writes, asked_ns, attempts[start:stop])

    def _part(self, rows: pl.DataFrame) -> dict[str, NDArray[Any]]:
        """The groups of some calls: a value for each group, or for each call."""
        key = ["parent_span_id", "service", "method", "thing"]
        calls = ["exchange_id", "server", "server_port", "device", "begin_ns", "failed_ns"]
        of_group = [pl.col("client_host", "place", "asked_ns").first(), pl.len().alias("count")]
        groups = rows.sort("begin_ns", "exchange_id").group_by(key, maintain_order=True).agg(*of_group, pl.col(calls))
        each = groups.select(calls).explode(calls)
        texts = {name: groups[column] for name, column in _OF_GROUP.items()}
        texts |= {name: each[column] for name, column in _OF_CALL.items()}
        numbers = {"asked": groups["asked_ns"], "begin": each["begin_ns"], "failed": each["failed_ns"]}
        return {
            "count": groups["count"].cast(pl.Int64).to_numpy(),
            "writes": groups["method"].is_in(WRITES).fill_null(value=False).to_numpy(),
            "exchange_id": each["exchange_id"].to_numpy(),
            "port": each["server_port"].fill_null(0).to_numpy(),
            **{name: values.fill_null(UNSEEN).to_numpy() for name, values in numbers.items()},
            **{name: self._codes(name, values) for name, values in texts.items()},
        }

    def _codes(self, name: str, values: pl.Series) -> NDArray[np.int32]:
        known = self._names[name]
        codes, texts = indices(values.to_arrow())
        return np.array([*(known.setdefault(text, len(known)) for text in texts), -1], np.int32)[codes]
