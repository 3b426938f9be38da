"""Which processes a report names for each server; and that the timeline knows them at both ends of each pair."""

from pathlib import Path

import polars as pl
import pytest

from collector.queries import open_trace
from collector.reporting.served_by import COLUMNS, served_by, served_words
from collector.services.service_names import ServiceNames
from collector.trace.model import ServiceInfo
from collector.trace.schema import conform
from testkit.synthetic_trace import Recipe, write_synthetic_trace

ROWS = [
    {"server_process": "nginx", "server_pid": 7, "server_user": "www-data", "server_unit": "nginx.service"},
    {"server_process": "nginx", "server_pid": 8, "server_user": "www-data", "server_unit": "nginx.service"},
    {"server_process": "nginx", "server_pid": None, "server_user": "www-data", "server_unit": "nginx.service"},
    {"server_user": "postgres", "server_port": 5432},
    {"server_port": 22},
]


@pytest.mark.parametrize("named", [True, False])
def test_each_server_is_said_with_its_processes_the_busiest_first(named: bool) -> None:
    rows = [{"connection_id": at, "server_host": "web1", "server_port": 80} | row for at, row in enumerate(ROWS)]
    table = conform("connections", pl.DataFrame(rows, infer_schema_length=None).to_arrow()).select(COLUMNS)
    services = (ServiceInfo("web1", 80, "shop"),) if named else ()
    lines = served_by([table], ServiceNames(services))
    assert lines == served_by([table.slice(0, 1), table.slice(1, 3), table.slice(4)], ServiceNames(services))
    assert [served_words(line) for line in lines] == [
        ("shop (web1:80)" if named else "web1:80", "nginx, user www-data", "2 processes, 3 connections"),
        ("web1:5432", "user postgres", "1 connection"),
    ]


def test_the_index_has_the_process_at_each_end(tmp_path: Path) -> None:
    write_synthetic_trace(tmp_path / "t", Recipe(12, 2, argv=None, owned=True))
    trace = open_trace(str(tmp_path / "t"))
    pairs, lanes = trace.pairs, [lane.host for lane in trace.lanes]
    found = {
        (lanes[source], trace.processes[own], lanes[target], trace.processes[other])
        for source, own, target, other in zip(
            pairs.source, pairs.source_process, pairs.target, pairs.target_process, strict=True
        )
    }
    assert ("client", "curl", "proxy", "swift-proxy-ser") in found
    assert ("proxy", "swift-proxy-ser", "client", "python3 (loadgen)") in found
    assert ("proxy", "swift-proxy-ser", "storage1", "swift-object-se") in found
    assert ("client", "unknown", "proxy", "unknown") in found
    assert ("storage1", "swift-proxy-ser", "proxy", "swift-object-se") not in found
