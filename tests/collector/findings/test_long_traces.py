"""What is found is the same whether columns are in memory or in files, and in whatever parts a trace comes."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from collector.execution import long_columns
from collector.findings import diagnosis, missing, near_stalls, placement
from tests.collector.findings import test_background
from tests.collector.findings.test_diagnosis import (
    GET_TWICE,
    MS,
    SLOW,
    asked_for_more_late,
    greeted_late,
    of_requests,
    replicas,
    script_of_a_stop,
)
from tests.collector.findings.test_findings import CASES, lines_of_findings
from tests.collector.services.test_replicas import USUAL, handoffs, upload

LIMITS = (
    (long_columns, "MOST_IN_MEMORY_ROWS"),
    (diagnosis, "MOST_IN_MEMORY_ROWS"),
    (near_stalls, "ROWS_AT_ONCE"),
    (missing, "ROWS_AT_ONCE"),
    (placement, "ROWS_AT_ONCE"),
)
ROWS = 7
"""So many rows has a part: none ends where a request of a tree does."""
FAILED = """
    client > proxy/swift-proxy      0  10 900 910 tx=1 method=PUT status=503
    proxy > storage1/swift-object  20  30 100 110 tx=1 method=PUT status=507 target=/d1/7/a/c/o
    proxy > storage2/swift-object  20  30   -   - tx=1 method=PUT up=880 target=/d2/7/a/c/o
    """


def _late_lines(line: Callable[[int, int], str]) -> str:
    """A server that is silent before it has all of a request."""
    usual = [line(at * MS, (at + 1) * MS) for at in (*range(0, 1000, 100), *range(3100, 4000, 100))]
    return "".join(usual + [line(at * MS, 3000 * MS) for at in range(1000, 1400, 100)])


def _slow_disk(host: str, service: str, device: str) -> int:
    return SLOW if (host, service, device) == ("storage2", "swift-object", "d2") else 2 * MS


REQUESTS = {
    "a replica lacks an object": GET_TWICE,
    "a full disk": FAILED,
    "a stopped server": script_of_a_stop("- -"),
    "a server that owes its greeting": _late_lines(greeted_late),
    "a server that owes its word": _late_lines(asked_for_more_late),
    "a slow disk": replicas(20, _slow_disk),
}
HANDOFF = "\n".join([upload(0, 1, *USUAL), upload(2_000_000, 2, "storage1:d1", "storage2:d1", "storage4:d1@300")])
REFUSALS = [(2_000_021, 2_000_060, "storage3")]
TRACES: dict[str, Callable[[], Iterable[Any]]] = {
    **{name: partial(of_requests, text) for name, text in REQUESTS.items()},
    "a daemon that slows others": partial(test_background.findings_of, slower=3.0),
    "a write to a handoff": partial(handoffs, HANDOFF, REFUSALS),
    **{name: partial(lines_of_findings, script) for name, (script, _) in CASES.items()},
}


@pytest.mark.parametrize("found", TRACES.values(), ids=TRACES)
def test_findings_do_not_depend_on_where_columns_are(
    found: Callable[[], Iterable[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, whole = found(), diagnosis.build_findings

    def build_of_parts(
        symptoms: Any, exchanges: Iterable[pa.Table], spans: Iterable[pa.Table], *rest: Any, **options: Any
    ) -> pa.Table:
        return whole(symptoms, _parts(exchanges), map(_in_reverse, _parts(spans)), *rest, **options, spill=tmp_path)

    for module, limit in LIMITS:
        monkeypatch.setattr(module, limit, 1)
    monkeypatch.setattr(diagnosis, "build_findings", build_of_parts)
    assert found() == expected
    assert list(tmp_path.iterdir()) == []


def _parts(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    for table in tables:
        yield from (table.slice(begin, ROWS) for begin in range(0, table.num_rows, ROWS))


def _in_reverse(part: pa.Table) -> pa.Table:
    """Spans in another order than exchanges: those of a trace are in the same one."""
    return part.take(list(range(part.num_rows))[::-1])
