"""What the connections of a partition show of servers."""

import numpy as np

from collector.services.servers import server_rows
from testkit.tables import table

PLAIN = {"server_addr": "10.0.0.2", "server_port": 80, "client_addr": "10.0.0.1", "client_port": 4_000}


def test_connections_of_one_server_are_one_row_with_their_number() -> None:
    rows = [
        *({**PLAIN, "client_addr": f"10.0.1.{number}", "server_host": "web"} for number in range(5)),
        {**PLAIN, "server_host": "web", "client_host": "a"},
        {**PLAIN, "server_host": "web", "translated_server_addr": "10.9.9.9", "translated_server_port": 8080},
        {**PLAIN, "client_port": 22, "server_unit": "web.service"},
    ]
    found = server_rows(table("connections", rows), np.array([22], np.uint16))
    key = ("server_host", "client_host", "translated_server_port", "server_port")
    counts = {tuple(row[name] for name in key): row["count"] for row in found.servers.rows(named=True)}
    assert counts == {
        ("web", None, None, 80): 5,
        ("web", "a", None, 80): 1,
        ("web", None, 8080, 80): 1,
        (None,) * 3 + (80,): 1,
    }
    (swapped,) = found.swapped.rows(named=True)
    assert (swapped["server_addr"], swapped["server_port"], swapped["count"]) == ("10.0.0.1", 22, 1)
    (owner,) = found.owners.rows(named=True)
    assert (owner["server_addr"], owner["server_unit"]) == ("10.0.0.2", "web.service")


def test_no_connections_show_no_servers() -> None:
    found = server_rows(table("connections", []), np.zeros(0, np.uint16))
    assert [len(rows) for rows in found] == [0, 0, 0]
