"""Container and account databases: the same statements in any order give the same state and counts."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_cluster.servers.databases.account_db import AccountDatabase, ContainerRow
from storage_cluster.servers.databases.container_db import ContainerDatabase, ObjectRow
from storage_cluster.servers.databases.database import OPEN_MAX, OpenDatabases
from storage_cluster.servers.http.listings import Names

ROWS = st.lists(
    st.builds(
        ObjectRow,
        name=st.sampled_from("abc"),
        timestamp=st.integers(1, 9).map(lambda second: f"17000000{second:02d}.00000"),
        size=st.integers(0, 50),
        content_type=st.just("x/y"),
        etag=st.just("e"),
        deleted=st.booleans(),
    ),
    max_size=8,
    unique_by=lambda row: (row.name, row.timestamp),
)


@settings(max_examples=40)
@given(rows=ROWS, random=st.randoms(use_true_random=False))
def test_container_rows_merge_in_any_order(
    rows: list[ObjectRow], random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    newest = {row.name: row for row in sorted(rows, key=lambda row: row.timestamp)}
    live = sorted((row for row in newest.values() if not row.deleted), key=lambda row: row.name)
    database = ContainerDatabase(tmp_path_factory.mktemp("c") / "c.db")
    for row in shuffled:
        database.merge_object(row)
    stat = database.stat()
    assert [entry.name for entry in database.entries(Names("", True, "", 100))] == [row.name for row in live]
    assert (stat.object_count, stat.bytes_used) == (len(live), sum(row.size for row in live))
    assert database.trouble() == ""
    in_order = ContainerDatabase(tmp_path_factory.mktemp("c") / "c.db")
    in_order.merge(rows)
    assert in_order.state().digest == database.state().digest
    in_order.close()
    database.close()


def test_container_is_made_deleted_and_made_again(tmp_path: Path) -> None:
    database = ContainerDatabase(tmp_path / "c.db")
    assert not database.stat().exists
    database.put("1.0", {"X-Container-Meta-A": "1"})
    assert database.stat().exists
    database.delete("2.0")
    assert not database.stat().exists
    database.put("1.5", {})  # a late word about the first making
    assert not database.stat().exists
    database.put("3.0", {})
    assert database.stat().exists
    assert database.stat().metadata == {}
    database.close()


def test_metadata_newest_wins_per_header(tmp_path: Path) -> None:
    for order in itertools.permutations([("1.0", "old"), ("2.0", "new"), ("3.0", "")]):
        database = ContainerDatabase(tmp_path / f"{'-'.join(at for at, _ in order)}.db")
        for timestamp, value in order:
            database.put(timestamp, {"X-Container-Meta-A": value})
        assert database.stat().metadata["X-Container-Meta-A"] == ("", "3.0")
        database.close()


def test_state_survives_the_process(tmp_path: Path) -> None:
    database = ContainerDatabase(tmp_path / "c.db")
    database.put("1.0", {})
    database.merge_object(ObjectRow("o", "2.0", 7))
    database.close()
    again = ContainerDatabase(tmp_path / "c.db")
    assert (again.stat().exists, again.stat().object_count, again.stat().bytes_used) == (True, 1, 7)
    again.close()


def test_account_adds_up_its_live_containers(tmp_path: Path) -> None:
    database = AccountDatabase(tmp_path / "a.db")
    database.put("1.0", {})
    database.merge_container(ContainerRow("a", "1.0", "0", 2, 10))
    database.merge_container(ContainerRow("b", "1.0", "0", 3, 20))
    database.merge_container(ContainerRow("b", "1.0", "2.0", 3, 20))
    stat = database.stat()
    assert (stat.exists, stat.container_count, stat.object_count, stat.bytes_used) == (True, 1, 2, 10)
    assert [entry.name for entry in database.entries(Names("", True, "", 10))] == ["a"]
    database.close()


@pytest.mark.parametrize("descending", [False, True])
def test_containers_that_servers_keep_for_themselves_are_listed_only_for_them(tmp_path: Path, descending: bool) -> None:
    database = AccountDatabase(tmp_path / "a.db")
    database.put("1.0", {})
    for name in ("a", "\0versions\0a", "b"):
        database.merge_container(ContainerRow(name, "1.0", "0", 1, 1))
    names = Names("", True, "", 10, descending)
    shown = ["b", "a"] if descending else ["a", "b"]
    hidden = ["\0versions\0a"]
    assert [entry.name for entry in database.entries(names)] == shown
    everything = shown + hidden if descending else hidden + shown
    assert [entry.name for entry in database.entries(names, reserved=True)] == everything
    database.close()


def test_only_so_many_databases_stay_open(tmp_path: Path) -> None:
    closed: list[Path] = []
    opened: OpenDatabases[Path] = OpenDatabases(lambda path: path, closed.append)
    paths = [tmp_path / str(n) for n in range(OPEN_MAX + 2)]
    for path in paths:
        opened.get(path, create=True)
    opened.get(paths[0], create=True)
    assert closed == paths[:3]
    assert opened.get(tmp_path / "absent", create=False) is None
    opened.close()
    assert sorted(closed[3:]) == sorted({*paths, paths[0]} - {paths[1], paths[2]})
