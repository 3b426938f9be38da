"""The kinds of connections: by service and by the processes at both ends, however many there are."""

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from collector.hops.owner_words import owner_group
from collector.queries.timeline import connection_kinds
from collector.queries.timeline.connection_kinds import OTHER_PROCESS, UNKNOWN_PROCESS, ConnectionKinds, most_kinds
from collector.services.service_names import ServiceNames
from collector.trace.schema import conform

OWNER = {"process": None, "user": None, "unit": None, "container": None, "pod": None}


class StoredConnections:
    """A trace that has this table alone."""

    def __init__(self, rows: list[dict[str, object]]) -> None:
        ids = {"connection_id": [7 * (at + 1) for at in range(len(rows))]}
        columns = {name: [row.get(name) for row in rows] for name in {name for row in rows for name in row}}
        self._table = conform("connections", pl.DataFrame(ids | columns).to_arrow())

    def read(self, name: str, columns: list[str]) -> pa.Table:
        assert name == "connections"
        return self._table.select(columns)


def row(client: str | None, server: str | None, port: int = 80) -> dict[str, object]:
    return {"client_process": client, "server_process": server, "server_host": "web", "server_port": port}


def kinds_of(rows: list[dict[str, object]], hosts: int = 2) -> tuple[ConnectionKinds, list[tuple[str, ...]]]:
    """The kinds, and the names of each connection's, and of one that is not in the table."""
    found = ConnectionKinds.read(StoredConnections(rows), ServiceNames(()), hosts)  # type: ignore[arg-type]
    places = found.of(np.array([*(7 * (at + 1) for at in range(len(rows))), 5]))
    processes = found.processes or ("", "")
    return found, [
        (found.services[found.service[at]], processes[found.client_process[at]], processes[found.server_process[at]])
        for at in places
    ]


def test_connections_are_of_the_service_and_the_processes_of_their_ends() -> None:
    found, names = kinds_of([row("curl", "nginx"), row("curl", None), row(None, "nginx", 443), row("curl", "nginx")])
    assert names == [
        ("web:80", "curl", "nginx"),
        ("web:80", "curl", UNKNOWN_PROCESS),
        ("web:443", UNKNOWN_PROCESS, "nginx"),
        ("web:80", "curl", "nginx"),
        ("other", UNKNOWN_PROCESS, UNKNOWN_PROCESS),
    ]
    assert found.processes == (OTHER_PROCESS, UNKNOWN_PROCESS, "curl", "nginx")
    assert len(found) == 4


def test_without_owners_there_are_no_processes() -> None:
    found, _ = kinds_of([row(None, None), row(None, None, 443)])
    assert found.processes == ()
    assert len(found) == 3
    assert kinds_of([])[1] == [("other", "", "")]


def test_of_many_processes_the_rarest_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_kinds, "MOST_PROCESSES", 2)
    found, names = kinds_of([row("a", "z"), row("b", "z"), row("b", "z"), row("c", "z")])
    assert found.processes == (OTHER_PROCESS, UNKNOWN_PROCESS, "b", "z")
    assert [client for _, client, _ in names] == [OTHER_PROCESS, "b", "b", OTHER_PROCESS, UNKNOWN_PROCESS]


def test_of_many_kinds_the_rarest_keep_their_service_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand connections of as many pairs of processes still have few kinds."""
    monkeypatch.setattr(connection_kinds, "MOST_KINDS", 8)
    rows = [row(f"client{at % 40}", f"server{at % 7}") for at in range(1_000)] + [row("cron", "db", 5432)] * 50
    found, names = kinds_of(rows)
    assert len(found) <= 8 + len(found.services)
    assert names[-2] == ("web:5432", "cron", "db")
    assert ("web:80", OTHER_PROCESS, OTHER_PROCESS) in names
    assert {service for service, *_ in names} == {"web:80", "web:5432", "other"}


def test_many_hosts_leave_room_for_fewer_kinds() -> None:
    assert most_kinds(1) == connection_kinds.MOST_KINDS
    assert most_kinds(200) * 201**2 <= connection_kinds.MOST_KEYS
    found, names = kinds_of([row("curl", "nginx"), row("wget", "nginx")], hosts=5_000)
    assert len(found) == 2
    assert names[0] == ("web:80", OTHER_PROCESS, OTHER_PROCESS)


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        ({"process": "nginx", "unit": "nginx.service", "user": "www-data"}, "nginx"),
        ({"process": "python3", "unit": "shop.service"}, "python3 (shop)"),
        ({"process": "curl", "unit": "session-3.scope"}, "curl"),
        ({"process": "java", "container": "3f2a1b0c4d5e", "unit": "docker-3f2a.scope"}, "java (3f2a1b0c4d5e)"),
        ({"process": "java", "pod": "web-0", "container": "3f2a1b0c4d5e"}, "java (web-0)"),
        ({"unit": "postgresql@15-main.service", "user": "postgres"}, "postgresql@15-main"),
        ({"user": "www-data", "unit": "user.slice"}, "user www-data"),
        ({}, ""),
    ],
)
def test_processes_that_are_shown_together_have_one_name(owner: dict[str, str], expected: str) -> None:
    assert owner_group(OWNER | owner) == expected
