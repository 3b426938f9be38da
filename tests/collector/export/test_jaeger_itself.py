"""Spans sent to Jaeger, which is an OpenTelemetry collector with a store: what it gives back is what was sent."""

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
from click.testing import CliRunner

from collector.analysis import analyse
from collector.commands.export import command
from collector.decode.sources import host_sources
from collector.export.jaeger import jaeger_traces
from collector.trace.reading import Trace
from tests.collector.export.test_spans_elsewhere import BUNDLED

JAEGER = shutil.which("jaeger")
CONFIG = """
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines: {{traces: {{receivers: [otlp], exporters: [jaeger_storage_exporter]}}}}
  telemetry: {{metrics: {{level: none}}, logs: {{level: error}}}}
extensions:
  jaeger_query:
    storage: {{traces: here}}
    http: {{endpoint: "127.0.0.1:{query}"}}
    grpc: {{endpoint: "127.0.0.1:{query_grpc}"}}
  jaeger_storage: {{backends: {{here: {{memory: {{max_traces: 1000}}}}}}}}
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: "127.0.0.1:{grpc}"}}, http: {{endpoint: "127.0.0.1:{http}"}}}}}}
exporters:
  jaeger_storage_exporter: {{trace_storage: here}}
"""
START_SECONDS = 60

pytestmark = pytest.mark.skipif(JAEGER is None, reason="Jaeger (its program `jaeger`, version 2) is not installed")


def free_ports(*names: str) -> dict[str, int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in names]
    ports = {name: each.getsockname()[1] for name, each in zip(names, sockets, strict=True)}
    for each in sockets:
        each.close()
    return ports


@pytest.fixture
def jaeger(tmp_path: Path) -> Iterator[dict[str, int]]:
    ports = free_ports("query", "query_grpc", "grpc", "http")
    (tmp_path / "jaeger.yaml").write_text(CONFIG.format(**ports))
    with (tmp_path / "jaeger.log").open("w") as log:
        started = subprocess.Popen([str(JAEGER), "--config", str(tmp_path / "jaeger.yaml")], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                read_api(ports, "services")
                break
            except (URLError, ConnectionError):
                assert time.monotonic() < deadline, (tmp_path / "jaeger.log").read_text()
                time.sleep(0.1)
        yield ports
    finally:
        started.kill()
        started.wait()


def read_api(ports: dict[str, int], path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{ports['query']}/api/{path}", timeout=10) as answer:
        return json.loads(answer.read())["data"]


def facts(trace: dict[str, Any], left_out: tuple[str, ...] = ()) -> dict[str, object]:
    """What a trace in Jaeger's JSON says, by span; tags are in no order."""
    return {
        span["spanID"]: (
            *(span[name] for name in ("traceID", "operationName", "startTime", "duration")),
            [(each["refType"], each["traceID"], each["spanID"]) for each in span["references"]],
            {tag["key"]: tag["value"] for tag in span["tags"] if tag["key"] not in left_out},
            [(log["timestamp"], each["value"]) for log in span["logs"] for each in log["fields"]],
            trace["processes"][span["processID"]]["serviceName"],
        )
        for span in trace["spans"]
    }


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_jaeger_gives_back_what_was_sent(scheme: str, jaeger: dict[str, int], tmp_path: Path) -> None:
    analyse(host_sources([str(BUNDLED)]), str(tmp_path / "bench"))
    sent = CliRunner().invoke(
        command, [str(tmp_path / "bench"), "--to", "otlp", "-o", f"{scheme}://127.0.0.1:{jaeger[scheme]}"]
    )
    assert sent.output.startswith("sent 37 spans"), sent.exception
    for ours in jaeger_traces(Trace(str(tmp_path / "bench"))):
        (its,) = read_api(jaeger, f"traces/{ours['traceID']}")
        of_scope = ("otel.scope.name", "otel.scope.version")
        assert facts(its, of_scope) == facts(ours, ("twintap.start_ns",))
