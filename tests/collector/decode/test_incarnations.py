"""The hosts of a session, of agents that were restarted and of machines that have the same name."""

import os
from pathlib import Path

import pytest

from collector.decode.incarnations import Incarnation, host_sources, sequences, stored_incarnations

FIRST, SECOND = "20261125T225248-0a1b2c", "20261125T225300-ffffff"


def incarnation(name: str, first_ns: int, last_ns: int, host: str = "db1") -> Incarnation:
    return Incarnation(host, name, (Path(f"/s/{host}/{name}/{name}-000001.pcapng"),), first_ns, last_ns)


@pytest.mark.parametrize(
    ("second_from_ns", "expected"),
    [(20, [[FIRST, SECOND]]), (19, [[FIRST], [SECOND]]), (0, [[FIRST], [SECOND]])],
)
def test_agents_one_after_the_other_are_one_capture_and_others_are_not(
    second_from_ns: int, expected: list[list[str]]
) -> None:
    found = sequences([incarnation(SECOND, second_from_ns, 30), incarnation(FIRST, 0, 20)])
    assert [[each.name for each in sequence] for sequence in found] == expected


def test_a_restart_of_one_of_two_continues_the_one_that_ended() -> None:
    found = sequences([incarnation("a", 0, 10), incarnation("b", 5, 30), incarnation("c", 12, 40)])
    assert [[each.name for each in sequence] for sequence in found] == [["a", "c"], ["b"]]


def test_only_agents_that_ran_together_are_separate_by_folder() -> None:
    found = sequences([incarnation("a", 0, 10), incarnation("b", 5, 9), incarnation("a", 0, 10, "web")])
    assert [(source.host, source.folder) for source in host_sources(found)] == [
        ("db1", Path("/s/db1/a")),
        ("db1", Path("/s/db1/b")),
        ("web", None),
    ]


def test_stored_segments_are_found_with_their_times(tmp_path: Path) -> None:
    for name, number, arrived_ns in ((FIRST, 2, 7), (FIRST, 1, 5), (SECOND, 1, 9)):
        path = tmp_path / "db1" / name / f"db1-{name}-{number:06d}.pcapng"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, ns=(arrived_ns, arrived_ns))
    (tmp_path / "db1" / "20261125T225400-000000").mkdir()
    (tmp_path / "live").mkdir()
    found = stored_incarnations(tmp_path)
    assert [(each.name, len(each.files), each.first_ns, each.last_ns) for each in found] == [
        (FIRST, 2, 5, 7),
        (SECOND, 1, 9, 9),
    ]
    (source,) = host_sources(sequences(found))
    assert [path.name[-10:-7] for path in source.files] == ["001", "002", "001"]
