"""OTLP/gRPC, against OpenTelemetry's own schema and a server of the gRPC library."""

import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from collector.analysis import analyse
from collector.commands.export import command
from collector.decode.sources import host_sources
from collector.export import otlp, otlp_grpc, otlp_push
from collector.export.protobuf import field as wire_field
from collector.service.authority import AuthorityFiles, prepare_authority
from collector.trace.reading import Trace
from tests.collector.export.test_spans_elsewhere import BUNDLED, read_otlp
from tests.helpers.script_traces import write_script_trace
from tracer.errors import InputError, MissingDependencyError, ServiceError

SCRIPT = """
    client:40000 > proxy:8080
        100 > 0:100 GET /a
       5000 < 0:50 503
"""
Answer = Callable[[grpc.ServicerContext], bytes]


@dataclass
class Receiver:
    """An OTLP/gRPC endpoint that keeps what it gets, and answers in turn."""

    url: str = ""
    got: list[ExportTraceServiceRequest] = field(default_factory=list)
    metadata: list[dict[str, object]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if details.method != "/opentelemetry.proto.collector.trace.v1.TraceService/Export":
            return None
        return grpc.unary_unary_rpc_method_handler(self._export)

    def _export(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        self.metadata.append(dict(context.invocation_metadata()))
        if self.answers:
            return self.answers.pop(0)(context)
        self.got.append(ExportTraceServiceRequest.FromString(body))
        return b""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    yield from serve(monkeypatch, None)


def serve(monkeypatch: pytest.MonkeyPatch, credentials: grpc.ServerCredentials | None) -> Iterator[Receiver]:
    monkeypatch.setattr(otlp_push, "FIRST_WAIT_SECONDS", 0.01)
    receiver = Receiver()
    handler = type("Handler", (grpc.GenericRpcHandler,), {"service": lambda _, details: receiver.service(details)})()
    server = grpc.server(ThreadPoolExecutor(1), handlers=[handler])
    if credentials is None:
        receiver.url = f"grpc://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    else:
        receiver.url = f"grpcs://127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
    server.start()
    yield receiver
    server.stop(None).wait()


@pytest.fixture
def trace(tmp_path: Path) -> str:
    write_script_trace(str(tmp_path / "trace"), SCRIPT)
    return str(tmp_path / "trace")


def send(trace: str, url: str, *more: str) -> str:
    result = CliRunner().invoke(command, [trace, "--to", "otlp", "-o", url, *more])
    if result.exception is not None:
        raise result.exception
    return result.output


def refusal(code: grpc.StatusCode, words: str, retry: Duration | None = None) -> Answer:
    def answer(context: grpc.ServicerContext) -> bytes:
        if retry is not None:  # google.rpc.Status, whose details are Any; RetryInfo has the duration as its field 1
            info = AnyMessage(
                type_url="type.googleapis.com/google.rpc.RetryInfo", value=wire_field(1, retry.SerializeToString())
            )
            details = wire_field(1, 8) + wire_field(2, words) + wire_field(3, info.SerializeToString())
            context.set_trailing_metadata([("grpc-status-details-bin", details)])
        return context.abort(code, words)

    return answer


def test_messages_are_those_of_the_json(tmp_path: Path) -> None:
    analyse(host_sources([str(BUNDLED)]), str(tmp_path / "bench"))
    write_script_trace(str(tmp_path / "failed"), SCRIPT)
    for name, count in (("bench", 37), ("failed", 1)):
        (request,) = otlp.export_requests(Trace(str(tmp_path / name)))
        assert otlp.spans_count(request) == count
        assert ExportTraceServiceRequest.FromString(otlp_grpc.encode(request)) == read_otlp(json.dumps(request))


def test_spans_are_sent_in_batches_with_headers(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    analyse(host_sources([str(BUNDLED)]), str(tmp_path / "bench"))
    monkeypatch.setattr(otlp_grpc, "SPANS_AT_ONCE", 10)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "tenant=a%20b")
    (tmp_path / "headers").write_text("Authorization: Bearer it: is\n\n")
    output = send(str(tmp_path / "bench"), receiver.url, "--headers", str(tmp_path / "headers"))
    assert output == f"sent 37 spans to {receiver.url}\n"
    sizes = [sum(len(r.scope_spans[0].spans) for r in each.resource_spans) for each in receiver.got]
    assert sizes == [10, 10, 10, 7]
    assert {(m["tenant"], m["authorization"]) for m in receiver.metadata} == {("a b", "Bearer it: is")}


@pytest.mark.parametrize(
    "answers",
    [
        [refusal(grpc.StatusCode.UNAVAILABLE, "soon")] * 3,
        [refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "soon", Duration(nanos=10_000_000))],
    ],
)
def test_what_is_refused_for_now_is_sent_again(answers: list[Answer], receiver: Receiver, trace: str) -> None:
    receiver.answers = list(answers)
    assert send(trace, receiver.url) == f"sent 1 spans to {receiver.url}\n"
    assert (len(receiver.metadata), len(receiver.got)) == (len(answers) + 1, 1)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([refusal(grpc.StatusCode.UNAVAILABLE, "never")] * 9, "did not take the spans 4 times (UNAVAILABLE: never)"),
        ([refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")], "did not take the spans (RESOURCE_EXHAUSTED: full)"),
        (
            [refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", Duration(seconds=3600))],
            "did not take the spans (RESOURCE_EXHAUSTED: full)",
        ),
        ([refusal(grpc.StatusCode.INVALID_ARGUMENT, "no")], "(INVALID_ARGUMENT: no); see its log"),
        ([refusal(grpc.StatusCode.UNAUTHENTICATED, "who")], "(UNAUTHENTICATED: who); give --headers FILE"),
        ([lambda _: b"\xff"], "does not answer as OTLP/gRPC does"),
    ],
)
def test_what_is_refused_is_said(answers: list[Answer], words: str, receiver: Receiver, trace: str) -> None:
    receiver.answers = list(answers)
    with pytest.raises(ServiceError) as refused:
        send(trace, receiver.url)
    assert words in str(refused.value)
    assert receiver.got == []


def test_spans_that_are_rejected_are_counted(receiver: Receiver, trace: str) -> None:
    partial = ExportTraceServiceResponse()
    partial.partial_success.rejected_spans = 3
    partial.partial_success.error_message = "too old"
    receiver.answers = [lambda _: partial.SerializeToString()]
    with pytest.raises(ServiceError, match="refused 3 spans: too old"):
        send(trace, receiver.url)


def test_tls_with_an_authority_of_ones_own(trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = AuthorityFiles(tmp_path / "authority")
    prepare_authority(made.folder, ("127.0.0.1",), "https://127.0.0.1:1", "token", datetime.now(UTC))
    both = made.collector.read_bytes()
    with_tls = serve(monkeypatch, grpc.ssl_server_credentials([(both, both)]))
    receiver = next(with_tls)
    assert "sent 1 spans" in send(trace, receiver.url, "--ca", str(made.ca))
    with pytest.raises(ServiceError, match="UNAVAILABLE"):
        send(trace, receiver.url)
    next(with_tls, None)


@pytest.mark.parametrize(
    ("url", "more", "words"),
    [
        ("grpc://host:99999", [], "is no place of a gRPC server"),
        ("grpc://user:secret@host", [], "is no place of a gRPC server"),
        ("grpc://host/v1/traces", [], "is no place of a gRPC server"),
        ("grpc://host", ["--ca", "ca.pem"], "--ca is for TLS, and grpc://host has none"),
        ("grpcs://host", ["--ca", "/none/ca.pem"], "/none/ca.pem cannot be read"),
        ("grpc://host", ["--headers", "/none/headers"], "the headers' file /none/headers cannot be read"),
        ("spans.jsonl", ["--ca", "ca.pem"], "--headers and --ca are for what is sent"),
    ],
)
def test_what_cannot_be_used(url: str, more: list[str], words: str, trace: str) -> None:
    with pytest.raises(InputError) as refused:
        send(trace, url, *more)
    assert words in str(refused.value)


def test_a_line_that_is_no_header_is_named_without_what_it_holds(trace: str, tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("a: b\nthe secret\n")
    with pytest.raises(InputError, match=r"line 2 of .*headers is no header") as refused:
        send(trace, "grpc://host", "--headers", str(tmp_path / "headers"))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["grpc://127.0.0.1:1", "http://127.0.0.1:1"])
def test_a_header_that_nothing_can_carry_is_named_without_its_value(
    url: str, trace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "a=b,token=secret%0A")
    with pytest.raises(InputError, match="part 2 of OTEL_EXPORTER_OTLP_HEADERS is no header") as refused:
        send(trace, url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", ["a~b", "trace-bin"])
def test_a_header_that_grpc_does_not_take(name: str, trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"{name}=secret")
    with pytest.raises(InputError, match=f"gRPC has no header {name}"):
        send(trace, "grpc://127.0.0.1:1")


def test_without_grpc_it_says_what_installs_it(trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(MissingDependencyError, match=r"gRPC is not installed; run: .*\[otlp-grpc\]"):
        send(trace, "grpc://127.0.0.1:1")
