"""Spans of OpenTelemetry and Jaeger, from files."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.annotations.records import Kind
from collector.annotations.spans.given import hexadecimal
from collector.annotations.spans.jaeger import is_jaeger, jaeger_spans
from collector.annotations.spans.otlp import is_otlp, otlp_spans
from collector.annotations.spans.reading import read_spans
from collector.trace.model import HostInfo
from tracer.errors import InputError

TRACE, SPAN, PARENT = "0AF7651916CD43DD8448EB211C80319C", "b7ad6b7169203331", "00f067aa0ba902b7"
HOSTS = [
    HostInfo("web", ("10.0.0.1",), (), (), 1, 1, 10**18, 10**18 + 10**9),
    HostInfo("db1", ("10.0.0.2", "fd00::2"), (), (), 1, 1, 10**18, 10**18 + 10**9),
]


def attribute(key: str, value: object) -> dict[str, object]:
    return {"key": key, "value": value}


def otlp(**more: object) -> dict[str, object]:
    """An object with a server's span on the host `web.example.org`."""
    span = {
        **{"traceId": TRACE, "spanId": SPAN, "parentSpanId": PARENT, "name": "GET /a", "kind": 2},
        **{"startTimeUnixNano": str(10**18 + 5), "endTimeUnixNano": 10**18 + 1_005, "status": {"code": 2}},
        "attributes": [
            attribute("http.request.method", {"stringValue": "get"}),
            attribute("url.full", {"stringValue": "http://web/a?b"}),
            attribute("http.response.status_code", {"intValue": "503"}),
            attribute(
                "http.request.header.authorization", {"arrayValue": {"values": [{"stringValue": "Bearer s3cr3tT0ken"}]}}
            ),
        ],
    }
    process = [
        attribute("service.name", {"stringValue": "shop"}),
        attribute("host.name", {"stringValue": "WEB.example.org"}),
    ]
    scopes = [{"spans": [span | more]}]
    return {"resourceSpans": [{"resource": {"attributes": process}, "scopeSpans": scopes}]}


def jaeger(**more: object) -> dict[str, object]:
    span = {
        **{"traceID": "af7651916cd43dd8448eb211c80319c", "spanID": SPAN, "operationName": "query", "processID": "p1"},
        **{
            "startTime": 10**15,
            "duration": 7,
            "tags": [{"key": "span.kind", "value": "client"}, {"key": "error", "value": True}],
        },
        "references": [{"refType": "CHILD_OF", "traceID": "af7651916cd43dd8448eb211c80319c", "spanID": PARENT}],
    }
    process = {"serviceName": "shop", "tags": [{"key": "ip", "value": "10.0.0.2"}]}
    return {"data": [{"spans": [span | more], "processes": {"p1": process}}]}


def file_of(folder: Path, *documents: object) -> Path:
    path = folder / "spans.json"
    path.write_text("".join(json.dumps(each) + "\n" for each in documents))
    return path


def test_a_span_of_otlp(tmp_path: Path) -> None:
    (record,), counters = read_spans([str(file_of(tmp_path, otlp()))], HOSTS)
    assert (record.kind, record.format, record.host, record.service) == (Kind.SPAN, "otlp", "web", "shop")
    assert (record.trace_id, record.span_id, record.parent_span_id) == (TRACE.lower(), SPAN, PARENT)
    assert (record.begin_host_ns, record.duration_ns) == (10**18 + 5, 1_000)
    assert (record.side, record.is_request, record.severity) == ("server", True, "error")
    assert (record.method, record.target, record.status) == ("GET", "/a?b", 503)
    assert "s3cr3t" not in record.text
    assert "url.full: http://web/a" in record.text
    assert not counters


def test_a_span_of_jaeger(tmp_path: Path) -> None:
    (record,), _ = read_spans([str(file_of(tmp_path, jaeger()))], HOSTS)
    assert (record.format, record.host, record.service, record.side) == ("jaeger", "db1", "shop", "client")
    assert (record.trace_id, record.parent_span_id) == (TRACE.lower(), PARENT)
    assert (record.begin_host_ns, record.duration_ns, record.severity) == (10**18, 7_000, "error")


@pytest.mark.parametrize(
    ("kind", "side"), [(3, "client"), ("SPAN_KIND_SERVER", "server"), (4, "client"), (1, ""), (None, "")]
)
def test_the_side_of_a_span(tmp_path: Path, kind: object, side: str) -> None:
    (record,), _ = read_spans([str(file_of(tmp_path, otlp(kind=kind)))], HOSTS)
    assert (record.side, record.is_request) == (side, side == "server")


def test_several_objects_a_compressed_file_and_what_is_none(tmp_path: Path) -> None:
    path = file_of(tmp_path, otlp(), otlp(traceId="xyz"), otlp(endTimeUnixNano=None), jaeger())
    path.write_text(path.read_text() + '{"resourceSpans": [{"cut": \n\n[1]\n')
    packed = tmp_path / "spans.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for each in (path, packed):
        records, (counter,) = read_spans([str(each)], HOSTS)
        assert [record.format for record in records] == ["otlp", "jaeger"]
        assert (counter.name, counter.count) == ("spans_unread", 4)


def test_spans_of_another_time_are_counted(tmp_path: Path) -> None:
    early = str(10**18 - 61 * 10**9)
    records, (counter,) = read_spans(
        [str(file_of(tmp_path, otlp(startTimeUnixNano=early, endTimeUnixNano=early)))], HOSTS
    )
    assert (records, counter.name, counter.count) == ([], "spans_outside", 1)


def host(name: str, *addresses: str) -> HostInfo:
    return HostInfo(name, addresses, (), (), 1, 1, 10**18, 10**18)


def test_an_address_that_two_hosts_have_names_neither_and_a_file_may_be_of_one(tmp_path: Path) -> None:
    path, hosts = file_of(tmp_path, jaeger()), [*HOSTS, host("db2", "10.0.0.2")]
    assert [record.host for record in read_spans([str(path)], hosts)[0]] == [None]
    assert [record.host for record in read_spans([f"db2={path}"], hosts)[0]] == ["db2"]
    with pytest.raises(InputError, match="no captured host is called db3"):
        read_spans([f"db3={path}"], hosts)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("web.a.example", "web.a.example"),
        ("WEB.B.EXAMPLE", "web.b.example"),
        ("web", None),
        ("api.other.example", "api"),
        ('["192.168.0.9","10.0.0.7"]', "api"),
        ("192.168.0.9, 10.0.0.7", "api"),
    ],
)
def test_which_host_a_process_names(tmp_path: Path, named: str, expected: str | None) -> None:
    hosts = [host("web.a.example"), host("web.b.example"), host("api", "10.0.0.7")]
    document = jaeger()
    document["data"][0]["processes"]["p1"]["tags"][0]["value"] = named  # type: ignore[index]
    assert [record.host for record in read_spans([str(file_of(tmp_path, document))], hosts)[0]] == [expected]


def test_stamps_of_whole_milliseconds_are_as_exact_as_that(tmp_path: Path) -> None:
    def uncertainty(*begins_us: int) -> list[int]:
        documents = [jaeger(startTime=10**15 + each, duration=2_000) for each in begins_us]
        records, _ = read_spans([str(file_of(tmp_path, *documents))], HOSTS)
        return [record.duration_uncertainty_ns for record in records]

    assert uncertainty(1_000, 5_000) == [1_000_000, 1_000_000]
    assert uncertainty(1_000, 5_001) == [1_000, 1_000]


@pytest.mark.parametrize("content", [b"", b"no JSON", b"[]", b"{}", b"[" * 100_000, b"\x1f\x8bdamaged", b"\xff\xfe{}"])
def test_a_file_without_spans_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "spans.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match="spans"):
        read_spans([str(path)], HOSTS)


def test_ids() -> None:
    assert hexadecimal("ABC", 4) == "0abc"
    assert [hexadecimal(each, 4) for each in ("", "0000", "12345", "xy", None, 7)] == [""] * 6


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = (
    "resource",
    "attributes",
    "scopeSpans",
    "spans",
    "traceId",
    "spanId",
    "startTimeUnixNano",
    "kind",
    "key",
    "value",
)


@given(JSON, st.sampled_from(NAMES), JSON)
def test_whatever_stands_there_is_a_span_or_none(anything: object, name: str, other: object) -> None:
    for document in (
        {"resourceSpans": [{name: other}, anything]},
        {"resourceSpans": [{"scopeSpans": [{"spans": [{name: other}, anything]}]}]},
        {"resourceSpans": [otlp(**{name: other})["resourceSpans"][0]]},  # type: ignore[index]
    ):
        assert is_otlp(document)
        assert all(each is None or each.trace_id for each in otlp_spans(document))
    for document in (
        {"data": anything},
        jaeger(**{name: other}),
        {"data": [{"spans": [anything], "processes": other}]},
    ):
        assert not is_jaeger(document) or all(each is None or each.trace_id for each in jaeger_spans(document))


def read_line(folder: Path, line: bytes) -> tuple[int, list[str]]:
    """How many spans a line gives, and all that is kept of them."""
    (folder / "spans.json").write_bytes(line + b"\n")
    records, _ = read_spans([str(folder / "spans.json")], HOSTS)
    return len(records), [f"{each.name} {each.service} {each.text}" for each in records]


def test_no_secret_of_an_attribute_is_kept(tmp_path: Path) -> None:
    secret = {
        "enduser.password": "hunter2 hunter2",
        "http.request.header.authorization": "Bearer hunter2 hunter2",
        "http.request.header.x_auth_token": "hunter2",
        "url.query": "token=hunter2",
        "url.full": "https://me:hunter2@web/a?X-Amz-Signature=hunter2",
        "db.statement": "select 1 where p = 'hunter2'",
        "db.query.text": "select 'it''s hunter2' || $$hunter2$$, 'hunter2",
    }
    given = [attribute(key, {"stringValue": value}) for key, value in secret.items()]
    count, kept = read_line(tmp_path, json.dumps(otlp(attributes=given, name="GET /a?token=hunter2")).encode())
    assert count == 1
    assert "hunter2" not in "".join(kept)
    assert "db.statement: select 1 where p = xxx" in kept[0]


def test_bytes_and_halves_of_characters_that_are_no_text_are_escaped(tmp_path: Path) -> None:
    halves = json.dumps(otlp(name="A\ud800Q", attributes=[attribute("k\udc01", {"stringValue": "\ud800"})]))
    count, kept = read_line(tmp_path, halves.encode().replace(b"Q", b"\xff"))
    assert (count, kept) == (1, [r"A\ud800\udcff shop k\udc01: \ud800"])


def test_a_line_ends_with_a_newline_alone(tmp_path: Path) -> None:
    line = json.dumps(otlp(name="A\u2028B\x85C"), ensure_ascii=False).encode()
    assert read_line(tmp_path, line + b"\n" + line)[0] == 2
