"""Statements of agents about who owns connections, as text."""

import pytest

from collector.capture_files import owners
from collector.capture_files.owners import Owner, OwnerEvidence, Owners, Statement

HOLDER = (
    "twintap.owner process=my%20server exe=/srv/%25 pid=812 start_ns=1764165600120000000 uid=33 user=www-data "
    "unit=web.service container=3f2a1b0c4d5e pod_uid=7d1ab6f2 pod=web-0"
)
OWNER = Owner("my server", "/srv/%", 812, 1764165600120000000, "www-data", "web.service", "3f2a1b0c4d5e", "web-0")
ENDS = (("10.0.0.1", 80), ("10.0.0.2", 4711))


def read(*comments: str) -> Owners:
    found = Owners()
    found.add(comments)
    return found


def line(evidence: str = "socket", seen_ns: int = 5) -> str:
    return f"\n10.0.0.1:80 10.0.0.2:4711 {evidence} {seen_ns}"


def test_a_statement_is_read_whole() -> None:
    found = read(f"{HOLDER}{line()}\n[2001:db8::1]:443 [2001:db8::2]:5 listener 9")
    assert found.ends == {
        ENDS: {5: Statement(OWNER, OwnerEvidence.SOCKET, 5)},
        (("2001:db8::1", 443), ("2001:db8::2", 5)): {9: Statement(OWNER, OwnerEvidence.LISTENER, 9)},
    }


def test_what_is_not_known_is_none_and_ids_stand_for_names() -> None:
    found = read(f"twintap.owner uid=33 pod_uid=7d1ab6f2{line()}")
    assert found.ends[ENDS][5].owner == Owner(user="33", pod="7d1ab6f2")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("listener", "socket", "b"),
        ("socket", "listener", "a"),
        ("socket", "socket", "b"),
        ("listener", "listener", "b"),
    ],
)
def test_of_statements_about_one_connection_the_better_or_later_holds(first: str, second: str, expected: str) -> None:
    found = read(f"twintap.owner process=a{line(first)}", f"twintap.owner process=b{line(second)}")
    assert found.ends[ENDS][5].owner.process == expected


def test_what_is_no_statement_is_counted() -> None:
    wrong = (
        "10.0.0.1:80 10.0.0.2:4711 socket", "10.0.0.1:80 10.0.0.2:4711 guess 5", "10.0.0.1 10.0.0.2:4711 socket 5",
        "10.0.0.1:80 10.0.0.2:70000 socket 5", "10.0.0.1:80 10.0.0.2:4711 socket -5", "", "\u0661:80 x:1 socket \u0661",
        "10.0.0.1:80 10.0.0.2:4711 socket 99999999999999999999",
    )  # fmt: skip
    found = read("\n".join((HOLDER, *wrong)))
    assert (found.ends, found.malformed_count) == ({}, len(wrong))


def test_numbers_out_of_range_and_control_characters_do_no_harm() -> None:
    found = read(f"twintap.owner process=%1b[31m%00 pid=99999999999 start_ns=x{line()}")
    owner = found.ends[ENDS][5].owner
    assert (owner.pid, owner.start_ns) == (None, None)
    assert owner.process is not None and owner.process.isprintable()


def test_counts_are_added_up_and_ends_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "MOST_ENDS", 2)
    found = read(*(f"{HOLDER}{line(seen_ns=at)}" for at in (1, 2, 3, 2)), *["twintap.owners unreadable=4"] * 2)
    assert (found.left_out_count, found.unreadable_count, len(found.ends[ENDS])) == (1, 8, 2)
