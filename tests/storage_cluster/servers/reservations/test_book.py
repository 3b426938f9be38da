"""The book: what was promised survives, ends, and is given back."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_cluster.servers.reservations import book as books
from storage_cluster.servers.reservations.admission import Admission, Claim, NotAdmittedError
from storage_cluster.servers.reservations.book import ACCESS, SPACE, Book
from storage_cluster.servers.reservations.claims import AccessReservation
from tests.storage_cluster.servers.reservations.test_admission import ONE_PIECE, admission_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "book.sqlite"


@pytest.fixture
def book(file: Path) -> Iterator[Book]:
    made = Book(file, admission_of)
    yield made
    made.close()


def reserve(book: Book, rate: float = 30, seconds: float = 60, owner: str = "test:tester") -> AccessReservation:
    now_s = time.time()
    asked = AccessReservation("b", "read", rate, now_s, now_s + seconds, "k")

    def admit(admission: Admission) -> tuple[AccessReservation, list[Claim]]:
        return admission.read(asked, ONE_PIECE)

    return book.enter(ACCESS, owner, admit)


def test_what_was_promised_is_found_by_its_owner_only(book: Book) -> None:
    made = reserve(book)
    assert made.owner == "test:tester"
    found = book.find(ACCESS, made.id, "test:tester")
    assert found is not None
    assert AccessReservation.from_json(found, 0.0) == made
    assert book.find(ACCESS, made.id, "test:other") is None
    assert book.find(SPACE, made.id, "test:tester") is None
    assert [each["id"] for each in book.list_open(ACCESS, "test:tester")] == [made.id]
    assert book.list_open(ACCESS, "test:other") == []


def test_what_was_promised_is_there_after_the_process_was_killed(book: Book, file: Path) -> None:
    made = reserve(book)
    again = Book(file, admission_of)  # the first is still open, as if it had died
    assert again.find(ACCESS, made.id, "test:tester") is not None
    with pytest.raises(NotAdmittedError):
        reserve(again)
    again.close()


def test_a_refusal_leaves_nothing_behind(book: Book) -> None:
    reserve(book)
    for _ in range(3):
        with pytest.raises(NotAdmittedError):
            reserve(book)
    assert len(book.list_open(ACCESS, "test:tester")) == 1
    reserve(book, 6)


def test_what_is_cancelled_is_given_back(book: Book) -> None:
    made = reserve(book)
    assert not book.cancel(ACCESS, made.id, "test:other")
    assert book.cancel(ACCESS, made.id, "test:tester")
    assert not book.cancel(ACCESS, made.id, "test:tester")
    reserve(book)


def test_what_has_ended_is_given_back_and_found_for_a_while(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    made, now_s = reserve(book, seconds=60), time.time()
    monkeypatch.setattr(books.time, "time", lambda: now_s + 61)
    assert book.list_open(ACCESS, "test:tester") == []
    reserve(book)
    assert book.find(ACCESS, made.id, "test:tester") is not None
    monkeypatch.setattr(books.time, "time", lambda: now_s + 61 + books.KEPT_S)
    reserve(book)
    assert book.find(ACCESS, made.id, "test:tester") is None
