"""`tracer cluster reserve`: what is typed wrongly, or cannot be, is said in one line."""

import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from storage_cluster import book_api, reserve_commands
from storage_cluster.errors import NotRunningError
from storage_cluster.s3.signatures import Credentials
from tracer.errors import ServiceError

ARGV = ("access", "read", "data/film", "20")


def run(*argv: str) -> Any:
    return CliRunner().invoke(reserve_commands.command, argv)


@pytest.fixture
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TWINTAP_CLUSTER_DIR", str(tmp_path))


@pytest.mark.usefixtures("no_cluster")
@pytest.mark.parametrize("argv", [("list",), ("cancel", "a1"), (*ARGV, "--seconds", "5")])
def test_without_a_cluster_it_says_so(argv: tuple[str, ...]) -> None:
    result = run(*argv)
    assert isinstance(result.exception, ServiceError)
    assert "no cluster is up" in str(result.exception)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (ARGV, "Missing option '--seconds'"),
        ((*ARGV, "--seconds", "0"), "0.0 is not in the range x>0"),
        ((*ARGV, "--seconds", "5", "--start", "soon"), "'soon' is no time in ISO 8601"),
        (("access", "both", "data", "20", "--seconds", "5"), "'both' is not one of 'read', 'write'"),
        (("access", "read", "data/film", "-1", "--seconds", "5"), "No such option '-1'"),
    ],
)
def test_what_is_typed_wrongly_is_named(argv: tuple[str, ...], said: str) -> None:
    result = run(*argv)
    assert result.exit_code == 2
    assert said in result.output


@pytest.fixture
def requests_made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, Any]]:
    """What the book is asked; it answers as if all were well."""
    found: list[tuple[str, str, Any]] = []

    def ask(method: str, path: str, fields: Any, user: str | None) -> Any:
        found.append((method, path, fields))
        if method == "GET":
            return [{"id": "a1", **_ACCESS}] if path == "/v1/accesses" else []
        return {"id": "a1", **_ACCESS}

    monkeypatch.setattr(reserve_commands, "_ask", ask)
    return found


_ACCESS = {
    "bucket": "data", "key": "a/b", "direction": "read", "mb_per_s": 20.0, "rates": {"storage1/d1": 20_000_000},
    "start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:10:00Z",
}  # fmt: skip


def test_a_reservation_is_asked_for_and_its_id_printed_alone(requests_made: list[tuple[str, str, Any]]) -> None:
    result = run("access", "read", "data/a/b", "20", "--start", "2026-01-01T00:00:00", "--seconds", "600")
    assert result.stdout == "a1\n"
    assert "read data/a/b at 20 MB/s (storage1/d1 20.0)" in result.stderr
    ((method, path, fields),) = requests_made
    assert (method, path) == ("POST", "/v1/accesses")
    assert fields == {
        "bucket": "data", "key": "a/b", "direction": "read", "mb_per_s": 20.0,
        "start": "2026-01-01T00:00:00.000Z", "end": "2026-01-01T00:10:00.000Z",
    }  # fmt: skip


def test_what_is_reserved_is_listed_and_cancelled(requests_made: list[tuple[str, str, Any]]) -> None:
    assert run("list").stdout.startswith("a1  read data/a/b at 20 MB/s")
    assert run("cancel", "a1").stdout == "Given back.\n"
    assert requests_made[-1][:2] == ("DELETE", "/v1/accesses/a1")
    assert isinstance(run("cancel", "other").exception, ServiceError)


def test_a_book_that_does_not_answer_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(NotRunningError, match="does not answer"):
            book_api.ask(url, Credentials("a:b", "c"), "GET", "/v1/accesses")
