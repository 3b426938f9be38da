"""Which statement of an agent belongs to which connection."""

import numpy as np
import pyarrow as pa

from collector.capture_files.owners import Owners
from collector.hops.owner_columns import owner_columns
from collector.hops.owner_words import owner_words

CLIENT, SERVER, NAT = "10.0.0.2:4711", "10.0.1.1:80", "10.0.1.9:6000"


def statements(*lines: str) -> Owners:
    """The agent's statements `PROCESS LOCAL REMOTE EVIDENCE SEEN_NS`."""
    found = Owners()
    for line in lines:
        process, end = line.split(" ", 1)
        found.add([f"twintap.owner process={process} pid=7\n{end}"])
    return found


def connections(
    count: int = 1, hosts: tuple[str | None, str | None] = ("web", "db"), translated: bool = False, begun: bool = True
) -> dict[str, pa.Array]:
    ends = {"client": CLIENT, "server": SERVER}
    columns = {"connection_id": pa.array(range(1, count + 1)), "client_isn": pa.array([9 if begun else None] * count)}
    for (side, end), host in zip(ends.items(), hosts, strict=True):
        address, _, port = end.partition(":")
        nat_address, _, nat_port = NAT.partition(":")
        is_changed = translated and side == "client"
        columns |= {
            f"{side}_host": pa.array([host] * count, pa.string()),
            f"{side}_addr": pa.array([address] * count),
            f"{side}_port": pa.array([int(port)] * count),
            f"translated_{side}_addr": pa.array([nat_address if is_changed else None] * count, pa.string()),
            f"translated_{side}_port": pa.array([int(nat_port) if is_changed else None] * count, pa.int64()),
        }
    return columns


def processes(owners: dict[str, Owners], found: dict[str, pa.Array], times: list[tuple[int, int]]) -> list[list[str]]:
    """The processes of clients and servers; connection N was seen at both hosts at its `times`."""
    numbers = [number for number, _ in enumerate(times, 1) for _ in range(4)]
    events = {
        "host": np.array([0, 0, 1, 1] * len(times)),
        "host_ns": np.array([at for span in times for at in (*span, *span)]),
    }
    columns = owner_columns(owners, found, events, np.array(numbers), ["web", "db"])
    return [columns[f"{side}_process"].to_pylist() for side in ("client", "server")] if columns else []


def test_each_end_is_looked_up_at_its_own_host() -> None:
    owners = {
        "web": statements(f"curl {CLIENT} {SERVER} socket 1"),
        "db": statements(f"nginx {SERVER} {CLIENT} listener 1"),
    }
    assert processes(owners, connections(), [(0, 9)]) == [["curl"], ["nginx"]]
    assert processes({"db": owners["db"]}, connections(), [(0, 9)]) == [[None], ["nginx"]]
    assert processes({"db": owners["web"]}, connections(), [(0, 9)]) == [[None], [None]]
    assert processes({}, connections(), [(0, 9)]) == []


def test_of_a_container_its_host_states_the_owner() -> None:
    """Its address is no captured host's."""
    at_host = statements(f"nginx {SERVER} {CLIENT} socket 1", f"curl {CLIENT} {SERVER} socket 1")
    found = connections(hosts=(None, None))
    assert processes({"db": at_host}, found, [(0, 9)]) == [["curl"], ["nginx"]]
    other = statements(f"other {SERVER} {CLIENT} socket 1")
    assert processes({"db": at_host, "web": other}, found, [(0, 9)]) == [["curl"], [None]], "two say two things"
    assert processes({"gone": at_host}, found, [(0, 9)]) == [[None], [None]], "it did not see this connection"


def test_behind_a_nat_the_server_knows_another_client() -> None:
    owners = {
        "web": statements(f"curl {CLIENT} {SERVER} socket 1"),
        "db": statements(f"nginx {SERVER} {NAT} socket 1", f"wrong {SERVER} {CLIENT} socket 1"),
    }
    assert processes(owners, connections(translated=True), [(0, 9)]) == [["curl"], ["nginx"]]


def test_ports_that_are_used_again_are_distinguished_by_time() -> None:
    lines = (f"first {CLIENT} {SERVER} socket 11", f"second {CLIENT} {SERVER} socket 31")
    owners = {"web": statements(*lines)}
    assert processes(owners, connections(2), [(10, 20), (30, 40)])[0] == ["first", "second"]
    assert processes({"web": statements(lines[0])}, connections(2), [(10, 20), (30, 40)])[0] == ["first", None]
    late = {"web": statements(f"old {CLIENT} {SERVER} socket 5")}
    assert processes(late, connections(2, begun=False), [(10, 20), (30, 40)])[0] == ["old", "old"]


def test_an_owner_in_words() -> None:
    names = ("process", "pid", "user", "unit", "container", "pod", "owner_evidence")
    cases = [
        (("nginx", 812, "www", "nginx.service", None, None, "socket"), "nginx (pid 812, user www, nginx.service)"),
        (("nginx", None, None, None, None, None, "listener"), "nginx (it listens at the port)"),
        ((None, None, "33", None, "3f2a1b0c4d5e", "web-0", "socket"),
         "process not known (user 33, container 3f2a1b0c4d5e, pod web-0)"),
        ((None,) * 7, ""),
    ]  # fmt: skip
    for values, expected in cases:
        assert (
            owner_words({f"client_{name}": value for name, value in zip(names, values, strict=True)}, "client")
            == expected
        )
