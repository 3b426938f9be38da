"""Queries with names: each that comes with the product runs, and a user can keep more."""

import re
from pathlib import Path

import pytest

from collector.sql.database import Database
from collector.sql.saved_queries import answers, keep_query, own_folder, query_of, saved_queries
from collector.trace.reading import Trace
from tests.helpers.script_traces import write_script_trace
from tracer.errors import InputError, ResourceError

SCRIPT = """
    client:40000 > proxy:8080
          0 > syn
         50 < syn_ack
        100 > 0:100 GET /a
        200 > 100:200 lost
        250 > 100:200 #2
        300 < 0:50 500
"""


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


@pytest.fixture(scope="module")
def database(tmp_path_factory) -> Database:
    place = str(tmp_path_factory.mktemp("saved") / "trace")
    write_script_trace(place, SCRIPT)
    return Database(Trace(place))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("slowest", {"method": "GET", "target": "/a", "status": 500}),
        ("classes", {"service": "swift-proxy", "what": "GET", "requests": 1}),
        ("servers", {"server": "proxy", "requests": 1}),
        ("links", {"sender": "client", "receiver": "proxy", "packets": 4, "lost": 1, "sent_again": 1}),
        ("lost", {"sender": "client", "receiver": "proxy", "bytes": 100, "method": "GET"}),
        ("failed", {"status": 500, "outcome": "failed", "requests": 1}),
        ("connections", {"client": "client", "server": "proxy", "requests": 1}),
        ("timeline", {"requests": 1, "failed": 1}),
        ("calls", None),
    ],
)
def test_a_query_that_comes_with_the_product(name: str, expected: dict | None, database: Database) -> None:
    with database.run(query_of(f"@{name}")) as found:
        rows = found.read_all().to_pylist()
    assert (rows[0] | expected == rows[0]) if expected else rows == []


def test_each_is_tested_and_says_what_it_answers() -> None:
    tested = {each.args[1][at][0] for each in test_a_query_that_comes_with_the_product.pytestmark for at in range(9)}
    assert set(saved_queries()) == tested
    assert all(answers(sql) and not answers(sql).startswith("SELECT") for sql in saved_queries().values())


def test_a_users_own(own_config: Path) -> None:
    assert keep_query("mine", "-- one\nSELECT 1") == own_config / "twintap" / "queries" / "mine.sql"
    assert query_of("@mine") == saved_queries()["mine"] == "-- one\nSELECT 1\n"
    assert answers(query_of("@mine")) == "one"
    keep_query("slowest", "SELECT 2")
    assert query_of("@slowest") == "SELECT 2\n"


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("SELECT 3")
    assert query_of(f"@{tmp_path / 'q.sql'}") == "SELECT 3"
    assert query_of("SELECT '@slowest'") == "SELECT '@slowest'"


@pytest.mark.parametrize(
    ("words", "expected"),
    [("@nope", "no saved query nope"), ("@nope.sql", "nope.sql"), ("@../x", "no saved query")],
)
def test_a_name_of_nothing(words: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        query_of(words)


def test_names_that_cannot_be(own_config: Path) -> None:
    for name in ("../x", "", "A", "a b", "-x", "x.sql"):
        with pytest.raises(InputError, match="cannot be the name"):
            keep_query(name, "SELECT 1")
    own_config.write_text("no folder")
    with pytest.raises(ResourceError, match="cannot be written"):
        keep_query("x", "SELECT 1")
    assert own_folder() == own_config / "twintap" / "queries"


PAGE = Path(__file__).resolve().parents[3] / "docs" / "query.md"


def test_the_page_names_each_query() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name, sql in saved_queries().items() if f"| `{name}` | {answers(sql)} |" not in page] == []


@pytest.mark.parametrize("sql", re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
def test_the_questions_of_the_page_are_answered(sql: str, database: Database) -> None:
    with database.run(sql) as found:
        assert found.read_all().num_rows > 0
