"""SQL over a trace: what the views say against the stored tables, what is read, and what a query may not do."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.sql.database import Database, QueryLimits
from collector.sql.views import VIEWS
from collector.trace.reading import Trace
from collector.trace.schema import TABLES
from tests.collector.trace.test_format import OLDER
from tests.helpers.script_traces import write_script_trace
from tracer.errors import InputError, ResourceError, TracerError

BUNDLED = Path(__file__).resolve().parents[3] / "captures" / "bench-2-puts"
ANY = QueryLimits()
LOSSY = """
    client:40000 > proxy:8080
          0 > syn
         50 < syn_ack
        100 > 0:100 GET /a
        200 > 0:100 lost #2
        300 < 0:50 200
"""


def rows_of(trace: Trace | str, query: str, limits: QueryLimits = ANY) -> list[dict]:
    database = Database(trace if isinstance(trace, Trace) else Trace(trace), limits)
    with database.run(query) as found:
        return found.read_all().to_pylist()


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> str:
    place = str(tmp_path_factory.mktemp("traces") / "bench")
    analyse(host_sources([str(BUNDLED)]), place)
    return place


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_a_view_has_its_columns_with_their_meanings(view, url: str) -> None:
    with Database(Trace(url)).run(f"FROM {view.name}") as found:
        assert found.schema.names == [column.name for column in view.columns]
        assert not [column.name for column in view.columns if not column.meaning]
        times = {column.name for column in view.columns if column.expression.startswith("make_timestamp_ns")}
        assert {field.name for field in found.schema if pa.types.is_timestamp(field.type)} == times


def test_requests_are_the_exchanges_with_their_spans(url: str) -> None:
    exchanges, spans = (pl.DataFrame(Trace(url).read(name)) for name in ("exchanges", "spans"))
    expected = exchanges.join(spans, left_on="exchange_id", right_on="span_id").sort("exchange_id")
    with Database(Trace(url)).run("FROM requests ORDER BY id") as rows:
        found = pl.DataFrame(rows.read_all())
    assert len(found) == 37
    assert found["id"].to_list() == expected["exchange_id"].to_list()
    duration_ns = expected["end_trace_ns"] - expected["start_trace_ns"] - expected["pause_ns"]
    assert (found["duration_ms"] * 1e6 - duration_ns).abs().max() < 1
    assert found["begin"].cast(pl.Int64).to_list() == expected["start_trace_ns"].to_list()
    assert found["target"].to_list() == expected["target"].to_list()
    held = [name for name in found.columns[found.columns.index("critical_ms") + 1 :] if name.endswith("_ms")]
    assert (found.select(pl.sum_horizontal(held)).to_series() - found["critical_ms"]).abs().max() < 1e-6
    server_ns = expected["response_first_sent_trace_ns"] - expected["request_last_received_trace_ns"]
    assert (found["server_ms"] * 1e6 - server_ns).abs().max() < 1
    assert found["server_ms"].null_count() == found["work_ms"].null_count() == 0


def test_what_a_server_did_is_not_known_from_its_client_alone(tmp_path: Path) -> None:
    analyse(host_sources([str(BUNDLED / "client.pcapng")]), str(tmp_path / "trace"))
    query = "SELECT server_ms, work_ms, queue_ms, server_or_network_ms > 0 AS has_sum FROM requests"
    unknown = {"server_ms": None, "work_ms": None, "queue_ms": None, "has_sum": True}
    assert rows_of(str(tmp_path / "trace"), query) == [unknown] * 4


def test_packets_are_the_hops(url: str) -> None:
    hops = pl.DataFrame(Trace(url).read("hops"))
    by_state = "SELECT state, kind, count(*) AS packets, sum(bytes)::BIGINT AS bytes FROM packets GROUP BY ALL"
    found = {(row["state"], row["kind"]): (row["packets"], row["bytes"]) for row in rows_of(url, by_state)}
    bytes_of = pl.col("stream_end") - pl.col("stream_start")
    expected = hops.group_by("state", "kind").agg(pl.len().alias("packets"), bytes_of.sum().alias("bytes"))
    assert found == {(state, kind): (packets, size) for state, kind, packets, size in expected.rows()}


def test_a_trace_without_requests_or_usage(tmp_path: Path) -> None:
    write_script_trace(str(tmp_path / "trace"), "client:40000 > proxy:8080\n 0 > syn\n 50 < rst")
    assert rows_of(str(tmp_path / "trace"), "SELECT count(*) AS n FROM requests") == [{"n": 0}]
    assert rows_of(str(tmp_path / "trace"), "SELECT count(*) AS n FROM usage") == [{"n": 0}]
    assert len(rows_of(str(tmp_path / "trace"), "FROM packets")) == 2


def test_a_trace_that_an_earlier_version_wrote() -> None:
    assert rows_of(str(OLDER), "SELECT count(*) > 0 AS has_requests FROM requests") == [{"has_requests": True}]
    assert rows_of(str(OLDER), "SELECT DISTINCT message_kinds IS NULL AS unknown FROM tables.hops") == [
        {"unknown": False}
    ]


def test_a_trace_that_is_no_directory(url: str) -> None:
    memory = "memory://sql/trace"
    analyse(host_sources([str(BUNDLED)]), memory)
    query = "SELECT method, count(*) AS n FROM requests GROUP BY ALL ORDER BY ALL"
    assert rows_of(memory, query) == rows_of(url, query)


class NotedTrace(Trace):
    """A trace that notes which columns of which tables are read."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.read_columns: dict[str, set[str]] = {}

    def batches(self, name: str, columns: Sequence[str]):
        self.read_columns.setdefault(name, set()).update(columns)
        return super().batches(name, columns)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT sum(bytes) FROM packets", {"hops": {"stream_start", "stream_end"}}),
        ("SELECT host FROM findings", {"findings": {"host"}}),
        (
            "SELECT bytes FROM packets WHERE kind = 'data' AND sender = 'client'",
            {"hops": {"stream_start", "stream_end", "kind", "send_host"}},
        ),
    ],
)
def test_only_columns_that_a_query_names_are_read(query: str, expected: dict[str, set[str]], url: str) -> None:
    trace = NotedTrace(url)
    rows_of(trace, query)
    assert trace.read_columns == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("kind = 'data'", 86),
        ("kind IN ('syn', 'syn_ack')", 72),
        ("kind LIKE 'syn%'", 72),
        ("sender = 'client' AND kind = 'data' AND bytes > 0", 4),
        ("delay_us > 1e9", 0),
        ("sender IS NULL", 0),
        ("sender IS NOT NULL", 375),
        ("NOT from_client", 179),
        ("kind = 'stream_start'", 0),
    ],
)
def test_conditions_choose_rows(condition: str, expected: int, url: str) -> None:
    assert rows_of(url, f"SELECT count(*) AS n FROM packets WHERE {condition}") == [{"n": expected}]
    assert len(rows_of(url, f"SELECT connection_id FROM packets WHERE {condition}")) == expected


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT nope FROM requests", 'column "nope" not found'),
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM nowhere", "nowhere does not exist"),
        ("", "0 statements"),
        ("SELECT 1; SELECT 2", "2 statements"),
        ("DROP VIEW requests", "read only"),
        ("CREATE TABLE t AS SELECT 1", "read only"),
        ("COPY (SELECT 1) TO '/tmp/twintap-must-not-be'", "read only"),
        ("SET threads = 1", "read only"),
        ("ATTACH '/tmp/twintap-must-not-be.db'", "read only"),
        ("INSTALL httpfs", "read only"),
        ("PRAGMA enable_profiling", "read only"),
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled"),
        ("SELECT * FROM read_text('/etc/passwd')", "disabled"),
        ("SELECT * FROM glob('/etc/*')", "disabled"),
        ("SELECT * FROM '/etc/passwd'", "does not exist"),
        ("SELECT * FROM trace", "does not exist"),
        ("SELECT getenv('HOME')", "does not exist"),
    ],
)
def test_what_a_query_may_not_do(query: str, words: str, url: str) -> None:
    trace = pl.DataFrame({"secret": [1]})  # which DuckDB would find by its name
    with pytest.raises(InputError) as refused:
        rows_of(url, query)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(trace) == 1
    assert not list(Path("/tmp").glob("twintap-must-not-be*"))


def test_a_query_ends_when_its_time_is_used_up(url: str) -> None:
    endless = "SELECT a.range FROM range(1000000000000) a WHERE hash(a.range) = 3"
    with pytest.raises(InputError, match=r"longer than 0\.2 s"):
        rows_of(url, endless, QueryLimits(seconds=0.2))


def test_a_query_ends_when_its_memory_is_used_up(url: str) -> None:
    large = "SELECT range, hash(range) AS h FROM range(100000000) ORDER BY h"
    with pytest.raises(ResourceError, match="more than 100 MiB"):
        rows_of(url, large, QueryLimits(memory_mib=100))


@pytest.mark.parametrize(("message", "expected"), [("Query interrupted", KeyboardInterrupt), ("no", RuntimeError)])
def test_what_duckdb_makes_of_ctrl_c_is_that_again(message: str, expected: type[BaseException], url: str) -> None:
    database = Database(Trace(url))
    with pytest.raises(expected), database.run("SELECT 1"):
        raise RuntimeError(message)


def test_queries_after_one_that_failed(url: str) -> None:
    database = Database(Trace(url), QueryLimits(seconds=30))
    for query in ("SELECT nope", "SELECT 1 AS n"):
        try:
            with database.run(query) as found:
                assert found.read_all().to_pylist() == [{"n": 1}]
        except TracerError as error:
            assert "nope" in str(error)


def test_a_damaged_table_is_named(url: str, tmp_path: Path) -> None:
    place = tmp_path / "trace"
    shutil.copytree(url, place)
    (place / "hops.parquet").write_bytes((place / "hops.parquet").read_bytes()[:-200])
    assert rows_of(str(place), "SELECT count(*) AS n FROM requests") == [{"n": 37}]
    with pytest.raises(InputError) as damaged:
        rows_of(str(place), "SELECT count(*) FROM packets WHERE kind = 'data'")
    assert str(damaged.value).startswith(f"{place}: its table hops is damaged")
    assert "Traceback" not in str(damaged.value)


def test_a_trace_of_which_a_column_is_missing(url: str, tmp_path: Path) -> None:
    place = tmp_path / "trace"
    shutil.copytree(url, place)
    pq.write_table(pq.read_table(place / "hops.parquet").drop(["kind"]), place / "hops.parquet")
    with pytest.raises(InputError) as lacking:
        rows_of(str(place), "SELECT kind FROM packets")
    assert str(lacking.value).startswith(f"{place}: its table hops has no column kind")


def test_a_trace_that_is_replaced_while_it_is_read(tmp_path: Path) -> None:
    place = str(tmp_path / "trace")
    write_script_trace(place, LOSSY)
    database = Database(Trace(place))
    with pytest.raises(InputError, match="was replaced"), database.run("FROM packets") as found:
        found.read_all()
        analyse(host_sources([str(BUNDLED)]), place)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT TIMESTAMP '2026-01-02' - TIMESTAMP '2026-01-01 23:59:58.5' AS d", {"d": "00:00:01.500000000"}),
        ("SELECT INTERVAL '-1 second' - INTERVAL '3 days' AS d", {"d": "-3 days -00:00:01.000000000"}),
        ("SELECT 1 AS a, 2 AS a, 3 AS a_2", {"a": 1, "a_2": 2, "a_2_2": 3}),
    ],
)
def test_rows_that_few_formats_have(query: str, expected: dict, url: str) -> None:
    assert rows_of(url, query) == [expected]


def test_every_stored_table_can_be_read(url: str) -> None:
    for name, schema in TABLES.items():
        assert rows_of(url, f"SELECT count(*) AS n FROM tables.{name}")[0]["n"] >= 0
        with Database(Trace(url)).run(f"FROM tables.{name}") as found:
            assert found.schema.names == schema.names
