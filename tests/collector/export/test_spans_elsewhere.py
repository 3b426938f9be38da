"""Requests in the formats of OpenTelemetry, Jaeger, HAR and Mermaid; OTLP is read by OpenTelemetry's own schema."""

import base64
import gc
import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread

import polars as pl
import pytest
from click.testing import CliRunner
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.analysis import analyse
from collector.commands.export import command
from collector.decode.sources import host_sources
from collector.export import otlp_push
from collector.trace.reading import Trace
from collector.trace.schema import TABLES
from tests.helpers.script_traces import write_script_trace
from tracer.errors import InputError, ServiceError

BUNDLED = Path(__file__).resolve().parents[3] / "captures" / "bench-2-puts"
FAILED = """
    client:40000 > proxy:8080
          0 > syn
         50 < syn_ack
        100 > 0:100 GET /a"<b>;{c}
       5000 < 0:50 503
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> str:
    place = str(tmp_path_factory.mktemp("traces") / "bench")
    analyse(host_sources([str(BUNDLED)]), place)
    return place


@pytest.fixture
def failed_trace(tmp_path: Path) -> str:
    write_script_trace(str(tmp_path / "failed"), FAILED)
    return str(tmp_path / "failed")


def export(*arguments: object) -> str:
    result = CliRunner().invoke(command, list(map(str, arguments)))
    if result.exception is not None:
        raise result.exception
    return result.output


def text_of(trace: str, form: str, place: Path, *more: object) -> str:
    assert export(trace, "--to", form, "-o", place, *more) == f"wrote {place}\n"
    return place.read_text(encoding="utf-8")


def spans_of(trace: str) -> dict[int, dict]:
    """Each span with its exchange, by id."""
    exchanges, spans = (pl.DataFrame(Trace(trace).read(name)) for name in ("exchanges", "spans"))
    rows = spans.join(exchanges, left_on="span_id", right_on="exchange_id", suffix="_of_exchange")
    return {row["span_id"]: row for row in rows.cast({pl.Categorical: pl.String}).iter_rows(named=True)}


def read_otlp(line: str) -> ExportTraceServiceRequest:
    """A line as the schema of OpenTelemetry reads it; OTLP's JSON has ids in hexadecimal, protobuf's own in base64."""
    ids = re.compile(r'"((?:trace|span|parentSpan)Id)": "([0-9a-f]+)"')
    in_base64 = ids.sub(lambda found: f'"{found[1]}": "{base64.b64encode(bytes.fromhex(found[2])).decode()}"', line)
    return json_format.Parse(in_base64, ExportTraceServiceRequest())


def otlp_spans(text: str) -> Iterator[tuple[dict, dict, object]]:
    """The resource's attributes, the span's, and the span."""
    for line in text.splitlines():
        for resource in read_otlp(line).resource_spans:
            about = attributes_of(resource.resource.attributes)
            for span in resource.scope_spans[0].spans:
                yield about, attributes_of(span.attributes), span


def attributes_of(pairs) -> dict[str, object]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def test_otlp_has_every_span_with_its_parent_and_its_times(trace: str, tmp_path: Path) -> None:
    expected, found = spans_of(trace), {}
    for resource, attributes, span in otlp_spans(text_of(trace, "otlp", tmp_path / "spans")):
        row = expected[attributes["twintap.exchange_id"]]
        assert resource == {"service.name": row["service"], "host.name": row["server_host"]}
        assert (span.start_time_unix_nano, span.end_time_unix_nano) == (row["start_trace_ns"], row["end_trace_ns"])
        assert attributes["http.request.method"] == span.name == row["method"]
        assert attributes["url.path"] == row["target"]
        assert attributes["http.response.status_code"] == row["status"]
        assert attributes.get("twintap.link.confidence") == row["confidence"]
        assert attributes["twintap.time.bound_ns"] == row["uncertainty_ns"]
        assert [event.name for event in span.events] == ["request arrived", "answer begun"]
        assert (len(span.trace_id), len(span.span_id)) == (16, 8)
        found[row["span_id"]] = span
    assert found.keys() == expected.keys()
    for number, span in found.items():
        parent = expected[number]["parent_span_id"]
        assert span.parent_span_id == (b"" if parent is None else found[parent].span_id)
        assert span.trace_id == found[expected[number]["trace_id"]].trace_id
    assert len({span.span_id for span in found.values()}) == len(found)


def test_otlp_of_a_failure_and_of_what_is_not_known(failed_trace: str, tmp_path: Path) -> None:
    ((_, attributes, span),) = otlp_spans(text_of(failed_trace, "otlp", tmp_path / "spans"))
    assert span.status.code == span.status.STATUS_CODE_ERROR
    assert attributes["twintap.outcome"] == "failed"
    assert "twintap.transaction_id" not in attributes


class Receiver(BaseHTTPRequestHandler):
    """An OTLP/HTTP endpoint that keeps what it gets."""

    got: list[tuple[str, str, str]] = []  # noqa: RUF012
    answers: list[tuple[int, bytes, dict[str, str]]] = []  # noqa: RUF012

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.got.append((self.path, self.headers.get("api-key", ""), body))
        status, content, headers = self.answers.pop(0) if self.answers else (200, b"{}", {})
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        self.got.append((self.path, "GET", ""))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Receiver, "got", [])
    monkeypatch.setattr(Receiver, "answers", [])
    monkeypatch.setattr(otlp_push, "FIRST_WAIT_SECONDS", 0.01)
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    gc.collect()  # what the exporter left open warns here, not in a later test


def test_otlp_is_sent_to_an_endpoint(trace: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b")
    assert export(trace, "--to", "otlp", "-o", endpoint) == f"sent 37 spans to {endpoint}\n"
    ((path, key, body),) = Receiver.got
    assert (path, key) == ("/v1/traces", "a b")
    assert len(list(otlp_spans(body))) == 37


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([(503, b"", {})] * 9, "refused the spans 4 times (503 Service Unavailable)"),
        ([(429, b"", {"Retry-After": "3600"})], "refused the spans (429 Too Many Requests)"),
        ([(400, b"", {})], "refused the spans (400 Bad Request)"),
        ([(302, b"", {"Location": "/elsewhere"})], "refused the spans (302 Found)"),
        (
            [(200, b'{"partialSuccess": {"rejectedSpans": "3", "errorMessage": "too old"}}', {})],
            "refused 3 spans: too old",
        ),
        ([(200, b"<html>", {})], "does not answer as OTLP/HTTP does"),
        ([(599, b"", {})], "refused the spans (599 "),
    ],
)
def test_an_endpoint_that_refuses(
    answers: list[tuple[int, bytes, dict[str, str]]], words: str, trace: str, endpoint: str
) -> None:
    Receiver.answers.extend(answers)
    with pytest.raises(ServiceError) as refused:
        export(trace, "--to", "otlp", "-o", endpoint)
    assert words in str(refused.value)
    assert "GET" not in {kind for _, kind, _ in Receiver.got}


def test_what_an_endpoint_refuses_for_now_is_sent_again(trace: str, endpoint: str) -> None:
    Receiver.answers.extend([(503, b"", {}), (429, b"", {"Retry-After": "0"}), (502, b"", {"Retry-After": "soon"})])
    assert export(trace, "--to", "otlp", "-o", endpoint) == f"sent 37 spans to {endpoint}\n"
    assert len(Receiver.got) == 4


def test_an_endpoint_that_is_not_there(trace: str) -> None:
    with pytest.raises(ServiceError, match="does not answer"):
        export(trace, "--to", "otlp", "-o", "http://127.0.0.1:1")


def test_jaeger_has_every_request_as_a_trace(trace: str, tmp_path: Path) -> None:
    expected = spans_of(trace)
    traces = json.loads(text_of(trace, "jaeger", tmp_path / "spans"))["data"]
    assert len(traces) == sum(row["parent_span_id"] is None for row in expected.values())
    for each in traces:
        ids = {span["spanID"] for span in each["spans"]}
        for span in each["spans"]:
            tags = {tag["key"]: tag["value"] for tag in span["tags"]}
            row = expected.pop(tags["twintap.exchange_id"])
            assert span["traceID"] == each["traceID"]
            assert tags["twintap.start_ns"] == row["start_trace_ns"]
            assert span["startTime"] == row["start_trace_ns"] // 1000
            assert span["duration"] == (row["end_trace_ns"] - row["start_trace_ns"]) // 1000
            assert {reference["spanID"] for reference in span["references"]} <= ids
            assert len(span["references"]) == (row["parent_span_id"] is not None)
            process = each["processes"][span["processID"]]
            assert (process["serviceName"], process["tags"][0]["value"]) == (row["service"], row["server_host"])
    assert expected == {}


def test_har_has_the_clients_http_requests(trace: str, tmp_path: Path) -> None:
    log = json.loads(text_of(trace, "har", tmp_path / "requests.har"))["log"]
    roots = [row for row in spans_of(trace).values() if row["parent_span_id"] is None]
    connections = pl.DataFrame(Trace(trace).read("connections", ["connection_id", "server_addr"]))
    addresses = dict(connections.cast({pl.Categorical: pl.String}).iter_rows())
    assert log["version"] == "1.2"
    assert [entry["request"]["method"] for entry in log["entries"]] == [row["method"] for row in roots]
    for entry, row in zip(log["entries"], roots, strict=True):
        assert entry["request"]["url"].endswith(row["target"])
        assert entry["response"]["status"] == row["status"]
        assert entry["serverIPAddress"] == addresses[row["connection_id"]]
        timings = entry["timings"]
        parts = [value for name, value in timings.items() if name != "ssl" and value > 0]
        whole_ns = row["end_trace_ns"] - row["start_trace_ns"]
        assert sum(parts) == pytest.approx(entry["time"]) == pytest.approx(whole_ns / 1e6)
        assert max(timings["connect"], 0) == pytest.approx(row["connect_ns"] / 1e6)
        assert timings["receive"] == pytest.approx(row["response_network_ns"] / 1e6)


def test_mermaid_draws_a_request_in_order_of_time(trace: str, tmp_path: Path) -> None:
    first, *lines = text_of(trace, "mermaid", tmp_path / "request.mmd", "--request", "#1").splitlines()
    assert first == "sequenceDiagram"
    assert lines[:4] == [
        "    participant h0 as client",
        "    participant h1 as storage1",
        "    participant h2 as proxy",
        "    h0->>h1: +0 ns GET /auth/v1.0",
    ]
    assert re.fullmatch(r"    h1-->>h0: \+6\.9 ms 200, 6\.9 ms", lines[-1])
    whole = text_of(trace, "mermaid", tmp_path / "longest.mmd")
    assert "PUT /v1/AUTH_test/bench" in whole
    assert whole.count("->>") == 2 * 17


def test_mermaid_escapes_what_means_something_there(failed_trace: str, tmp_path: Path) -> None:
    text = text_of(failed_trace, "mermaid", tmp_path / "request.mmd")
    assert "GET /a#34;#60;b#62;#59;#123;c#125;" in text
    assert text.splitlines()[-1].endswith("503, 5.0 ms")


@pytest.mark.parametrize("form", ["otlp", "jaeger", "har"])
def test_one_request_alone(form: str, trace: str, tmp_path: Path) -> None:
    whole = text_of(trace, form, tmp_path / "whole")
    one = text_of(trace, form, tmp_path / "one", "--request", "slowest")
    assert "/v1/AUTH_test/bench" in one
    assert "/auth/v1.0" in whole
    assert "/auth/v1.0" not in one


def test_parquet_holds_every_table(trace: str, tmp_path: Path) -> None:
    assert export(trace, "--to", "parquet", "-o", tmp_path / "out") == f"{len(TABLES)} files in {tmp_path / 'out'}\n"
    for name, schema in TABLES.items():
        found, stored = pl.read_parquet(tmp_path / "out" / f"{name}.parquet"), pl.DataFrame(Trace(trace).read(name))
        assert found.columns == schema.names
        assert found.equals(stored.select(schema.names).cast({pl.Categorical: pl.String})), name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "workload", "--request", "#1"], "workload holds a whole trace"),
        (["--to", "otlp", "--request", "#99"], "there is no request #99"),
        (["--to", "har", "-o", "http://127.0.0.1:9/"], "har is written to a file"),
    ],
)
def test_what_cannot_be_exported(arguments: list[str], words: str, trace: str) -> None:
    with pytest.raises(InputError, match=words):
        export(trace, *arguments)


SHIVIZ = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})"
"""The expression by which ShiViz reads a log, as its page has it; of a file, if its first line holds no other."""


def shiviz_events(file: str) -> list[tuple[str, dict[str, int], str]]:
    """What ShiViz reads, from a file or from what is pasted: host, clock and words of each event."""
    expression, divider, log = file.split("\n", 2)
    assert (expression, divider) == (SHIVIZ, "")
    read = re.compile(SHIVIZ.replace("(?<", "(?P<"))
    assert read.findall(file) == read.findall(log)
    assert read.sub("", log).strip() == ""
    return [(each["host"], json.loads(each["clock"]), each["event"]) for each in read.finditer(log)]


def before(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(count <= other.get(host, 0) for host, count in one.items()) and one != other


def test_shiviz_orders_events_by_cause(trace: str, tmp_path: Path) -> None:
    events = shiviz_events(text_of(trace, "shiviz", tmp_path / "log"))
    assert {host for host, _, _ in events} == {"client", "proxy", "storage1", "storage2", "storage3"}
    for host in {host for host, _, _ in events}:
        own = [clock for of, clock, _ in events if of == host]
        assert [clock[host] for clock in own] == list(range(1, len(own) + 1))
        assert all(before(*pair) for pair in pairwise(own))
    sends = [event for event in events if event[2].startswith("sends")]
    receives = [event for event in events if event[2].startswith("receives")]
    assert len(sends) == len(receives) == len(events) / 2
    first, last = events[0], events[-1]
    assert first[0] == "client"
    assert before(first[1], last[1])
    for host, clock, words in receives:  # each is after a send of its other end
        other = re.search(r" from (\S+): ", words)[1]
        assert clock.get(other, 0) > 0, (host, words)


def test_shiviz_of_one_request_and_of_none(trace: str, failed_trace: str, tmp_path: Path) -> None:
    log = text_of(trace, "shiviz", tmp_path / "one", "--request", "#1")
    assert "GET /auth/v1.0" in log
    assert "PUT" not in log
    text = text_of(failed_trace, "shiviz", tmp_path / "failed.log")
    assert 'sends SYN to proxy: GET /a"<b>;{c}\nclient {"client": 1}\n' in text
    assert len(shiviz_events(text)) == 8
    write_script_trace(str(tmp_path / "empty"), "")
    assert shiviz_events(text_of(str(tmp_path / "empty"), "shiviz", tmp_path / "nothing")) == []
