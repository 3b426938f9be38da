"""`tracer replay --spans`: from a file of spans to what `tracer why` says of a request."""

import json
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from collector.annotations.agreement import said_of
from collector.commands.replay import command as replay
from collector.commands.report import command as report
from collector.export import jaeger, otlp
from collector.trace.reading import Trace
from testkit.synthetic_trace import Recipe, write_synthetic_trace
from testkit.tables import table
from tests.helpers.stored_tables import write_table

CAPTURE = Path(__file__).parents[3] / "captures" / "swift-upload-1B"


def test_spans_are_placed_joined_and_compared_with_packets(tmp_path: Path) -> None:
    plain, trace = tmp_path / "plain", tmp_path / "trace"
    assert CliRunner().invoke(replay, [str(CAPTURE), "-o", str(plain), "--quiet"]).exit_code == 0
    frame = pl.DataFrame(Trace(str(plain)).read("exchanges")).cast({pl.Categorical: pl.String})
    row = frame.filter((pl.col("server_host") == "proxy") & (pl.col("method") == "PUT")).to_dicts()[0]
    (offset_ns,) = (
        each["offset_ns"] for each in Trace(str(plain)).read("clocks").to_pylist() if each["host"] == "proxy"
    )
    begin_ns = row["request_last_received_trace_ns"] + offset_ns + 10_000
    span = {
        **{"traceId": "a" * 32, "spanId": "b" * 16, "name": "handler", "kind": 2},
        **{"startTimeUnixNano": str(begin_ns), "endTimeUnixNano": str(begin_ns + 50_000)},
        "attributes": [{"key": "url.path", "value": {"stringValue": row["target"]}}],
    }
    inner = span | {"spanId": "c" * 16, "parentSpanId": "b" * 16, "kind": 1}
    process = {"attributes": [{"key": "host.name", "value": {"stringValue": "proxy"}}]}
    document = {"resourceSpans": [{"resource": process, "scopeSpans": [{"spans": [span, inner]}]}]}
    (tmp_path / "spans.json").write_text(json.dumps(document))
    spans = ["--spans", str(tmp_path / "spans.json")]
    done = CliRunner().invoke(replay, [str(CAPTURE), "-o", str(trace), "--quiet", *spans])
    assert done.exit_code == 0, done.output
    server, below = said_of(Trace(str(trace)), [row["exchange_id"]])
    assert (server.kind, server.joined_by, server.exchange_id) == ("span", "time", row["exchange_id"])
    assert "packets show" in server.comparison
    assert (below.joined_by, below.comparison) == ("id", "")
    assert "Spans of other tracers  2 of 2 joined to a request" in done.output
    assert "in the server before its span began" in done.output
    facts = json.loads(CliRunner().invoke(report, [str(trace), "--json"]).output)
    [late] = [line for line in facts["disagreements"] if line["kind"] == "server_before"]
    expected_ns = row["request_last_received_trace_ns"] + 10_000 - row["request_head_received_trace_ns"]
    assert (late["count"], late["median_ns"]) == (1, late["largest"]["duration_ns"])
    assert abs(late["median_ns"] - expected_ns) < 1_000
    CliRunner().invoke(report, [str(trace), "--html", str(tmp_path / "page.html")])
    assert "Where these spans and packets disagree" in (tmp_path / "page.html").read_text("utf-8")


@pytest.mark.parametrize("form", ["otlp", "jaeger"])
def test_exports_read_back_are_joined_to_their_own_requests(tmp_path: Path, form: str) -> None:
    plain, trace, spans = tmp_path / "plain", tmp_path / "trace", tmp_path / "spans.json"
    assert CliRunner().invoke(replay, [str(CAPTURE), "-o", str(plain), "--quiet"]).exit_code == 0
    {"otlp": otlp, "jaeger": jaeger}[form].write(Trace(str(plain)), spans)
    done = CliRunner().invoke(replay, [str(CAPTURE), "-o", str(trace), "--quiet", "--spans", str(spans)])
    assert done.exit_code == 0, done.output
    rows = pl.DataFrame(Trace(str(trace)).read("annotations")).cast({pl.Categorical: pl.String})
    own = rows["text"].str.extract(r"twintap\.exchange_id: (\d+)").cast(pl.Int64)
    assert len(rows) == Trace(str(plain)).rows_count("spans") > 30
    assert rows["exchange_id"].to_list() == own.to_list()
    assert set(rows["joined_by"]) == {"id"}
    assert "disagree" not in done.output


def test_a_client_and_its_server_on_one_host_are_compared_each_with_its_own_packets(tmp_path: Path) -> None:
    row = {
        **{"exchange_id": 1, "client_host": "web", "server_host": "web"},
        **{"request_first_sent_trace_ns": 1_000, "response_last_received_trace_ns": 10_001_000},
        **{"request_first_received_trace_ns": 1_000_000, "response_last_sent_trace_ns": 2_000_000},
    }
    said = {
        "exchange_id": 1,
        "start_trace_ns": 1,
        "kind": "span",
        "host": "web",
        "duration_uncertainty_ns": 1_000,
        "joined_by": "id",
    }
    spans = [
        {"annotation_id": 0, "side": "client", "duration_ns": 10_000_000},
        {"annotation_id": 1, "side": "server", "duration_ns": 1_000_000},
    ]
    trace = tmp_path / "trace"
    write_synthetic_trace(trace, Recipe())
    write_table(str(trace), "exchanges", table("exchanges", [row]))
    write_table(str(trace), "annotations", table("annotations", [said | each for each in spans]))
    assert [each.comparison for each in said_of(Trace(str(trace)), [1])] == ["as packets show", "as packets show"]
