"""Traces of this format made by earlier code open with today's; docs/trace-format.md has the policy.

`format-3/` was made from captures/swift-upload-1B by the code of 23 November 2026, and is never made anew: a trace of a
later format gets a folder of its own beside it.
"""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from collector.commands.report import command as report
from collector.queries import open_trace
from collector.trace.reading import Trace
from collector.trace.schema import ADDED, ADDED_TABLES, FORMAT_VERSION, TABLES
from tracer.errors import InputError

OLDER = Path(__file__).parent / f"format-{FORMAT_VERSION}"
OF_OWNERS = (*("process", "exe", "pid", "process_start_host_ns", "user", "unit", "container", "pod", "owner_evidence"),)
OF_FIRST = [table for table in TABLES if table not in ADDED_TABLES]
REMOVABLE = [(table, column) for table, columns in ADDED.items() for column in columns]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLDER, tmp_path / "trace"))


def rewrite_without(trace: Path, table: str, column: str) -> None:
    path = trace / f"{table}.parquet"
    stored = pq.read_table(path)
    if column in stored.column_names:  # else the trace was made before there was such a column
        pq.write_table(stored.drop_columns([column]), path)


def report_text(trace: Path) -> str:
    result = CliRunner().invoke(report, [str(trace)])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_trace_of_earlier_code_is_reported_and_opened(trace: Path) -> None:
    text = report_text(trace)
    assert "391 hops on 38 connections (391 matched)" in text
    view = open_trace(str(trace))
    assert [lane.host for lane in view.lanes] == ["client", "proxy", "storage1", "storage2", "storage3"]
    assert view.summary.requests_count == 5
    assert "PUT /v1/AUTH_test/container/one-byte" in {request.title for request in view.requests(5)}


@pytest.mark.parametrize("table", ADDED)
def test_a_report_needs_no_column_added_since(trace: Path, table: str) -> None:
    whole = report_text(trace)
    for column in ADDED[table]:
        rewrite_without(trace, table, column)
    assert report_text(trace) == whole


@pytest.mark.parametrize(("table", "column"), REMOVABLE)
def test_what_a_column_added_since_would_hold_stands_for_it(trace: Path, table: str, column: str) -> None:
    before = Trace(str(trace)).read(table)
    rewrite_without(trace, table, column)
    filled = Trace(str(trace)).read(table)
    assert filled.column_names == before.column_names
    assert filled.column(column).combine_chunks().equals(pa.repeat(ADDED[table][column], before.num_rows))
    for _, batch in Trace(str(trace)).batches_with_share(table, [column]):
        assert batch.column_names == [column]


def test_the_columns_that_traces_of_this_format_may_lack_stay_the_same() -> None:
    """They were added without a new version of the format: without one of them here, earlier traces are refused."""
    assert {table: set(columns) for table, columns in ADDED.items()} == {
        "connections": {
            *("protocol", "protocol_evidence", "tls_server_name", "tls_alpn_offered", "tls_alpn"),
            *("tls_versions_offered", "tls_version", "tls_cipher", "tls_resumption", "tls_early_data_offered"),
            *("tls_ech_offered", "tls_retried", "tls_alert", "tls_alert_from", "tls_evidence"),
            *("changed_to", "closing", "tls_opened"),
            *(f"{side}_{name}" for side in ("client", "server") for name in OF_OWNERS),
        },
        "hops": {"message_kinds", "likely_error_ns"},
        "clocks": {"likely_error_ns"},
        "streams": {"control_count", "closing", "likely_error_ns"},
        "messages": {
            "range_first",
            "range_last",
            "result_code",
            "frame_kind",
            "stream_id",
            "authority",
            "client_span_id",
        },
        "exchanges": {
            *("until_close", "range_first", "range_last", "result_code", "result", "status_class", "authority"),
            *("operation", "bucket", "object_key", "upload", "part", "likely_error_ns", "client_span_id"),
            *("connected_received_trace_ns", "greeting_sent_trace_ns", "greeting_received_trace_ns"),
        },
    }


def test_a_table_added_since_reads_as_empty_where_a_trace_lacks_it(trace: Path) -> None:
    assert {path.stem for path in trace.glob("*.parquet")} == set(OF_FIRST)
    assert set(ADDED_TABLES) == {"annotations"}
    for table in ADDED_TABLES:
        stored = Trace(str(trace))
        assert stored.read(table).equals(TABLES[table].empty_table())
        assert stored.read(table, ["source", "host"]).column_names == ["source", "host"]
        assert (stored.rows_count(table), list(stored.batches(table, ["host"]))) == (0, [])
        assert stored.rows_between(table, ["host"], 0, 5).num_rows == 0
    with pytest.raises(InputError, match="no such trace"):
        Trace(str(trace.parent / "nothing")).read("annotations")


def test_another_column_that_is_missing_is_named(trace: Path) -> None:
    rewrite_without(trace, "exchanges", "request_bytes")
    with pytest.raises(InputError, match="exchanges has no column request_bytes"):
        Trace(str(trace)).read("exchanges", ["exchange_id", "request_bytes"])


def test_each_column_is_in_the_first_trace_of_this_format_or_was_added_with_what_stands_for_it() -> None:
    for table in OF_FIRST:
        schema = TABLES[table]
        stored = set(pq.read_schema(OLDER / f"{table}.parquet").names)
        assert stored | set(ADDED.get(table, ())) >= set(schema.names), table
        assert set(ADDED.get(table, ())) <= set(schema.names), table
        for name, value in ADDED.get(table, {}).items():
            assert value.type == schema.field(name).type
            assert value.is_valid or schema.field(name).nullable


OUTSIDE_THE_CONTRACT = {"events": {"duplicate"}}
"""Columns that a file may have beside those of the schema."""


@pytest.mark.parametrize("table", OF_FIRST)
def test_no_column_of_the_first_trace_of_this_format_was_renamed_removed_or_changed_its_type(table: str) -> None:
    stored, schema = pq.read_schema(OLDER / f"{table}.parquet"), TABLES[table]
    assert set(stored.names) - set(schema.names) == OUTSIDE_THE_CONTRACT.get(table, set())
    common = [name for name in stored.names if name in schema.names]
    assert {name: stored.field(name).type for name in common} == {name: schema.field(name).type for name in common}
