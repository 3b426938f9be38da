"""The load generator: its figures from known rows, its rows from a real store, its words for what went wrong."""

import csv
import io
import json
import socket
import threading
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from storage_cluster.bench import load, results
from storage_cluster.bench.client import Access, Credentials, Order, Worker
from storage_cluster.bench.commands import command
from storage_cluster.bench.results import PERCENTILES, Plan, RequestRow
from storage_cluster.errors import NotRunningError
from tests.helpers.loopback_store import LoopbackStore

MS = 1_000_000


def plan(operation: str = "put", count: int = 20, concurrency: int = 4, retries_max: int = 0) -> Plan:
    return Plan(operation, count, 1000, concurrency, "bench", retries_max)


def row(index: int, attempt: int, start_ms: int, end_ms: int, error: str = "") -> RequestRow:
    return RequestRow("put", index, attempt, f"bench/{index}", start_ms * MS, end_ms * MS, 201, error, 1000, 0, "tx", 1)


def credentials(store: LoopbackStore) -> Credentials:
    return Credentials(store.auth_url, "test:tester", "testing")


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts, then closes without a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()

        def answer() -> None:
            listener.settimeout(0.05)
            while not stop.is_set():
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    continue
                connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        yield listener.getsockname()[1]
        stop.set()
        thread.join()


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=300))
def test_percentiles_are_by_nearest_rank(values: list[int]) -> None:
    found = results.percentiles(values)
    for percent, value in zip(PERCENTILES, found.values(), strict=True):
        assert value in values
        assert sum(other <= value for other in values) >= percent * len(values) / 100
        assert sum(other < value for other in values) < percent * len(values) / 100
    assert found["100"] == max(values)


def test_a_retried_operation_lasts_from_its_first_attempt_to_its_last() -> None:
    rows = [row(0, 1, 0, 10), row(1, 1, 0, 5, "reset"), row(1, 2, 6, 30), row(2, 1, 0, 7, "status")]
    summary = results.summarize(plan(count=3), rows, elapsed_ns=2_000 * MS)
    assert (summary.operations_count, summary.failures_count, summary.retries_count) == (3, 1, 1)
    assert summary.latency_ns["50"] == 10 * MS
    assert summary.latency_ns["100"] == 30 * MS
    assert (summary.operations_per_s, summary.bytes_per_s) == (1.0, 1000.0)
    assert summary.errors == {"reset": 1, "status": 1}
    assert [(slow.index, slow.latency_ns) for slow in summary.slowest] == [(1, 30 * MS), (0, 10 * MS)]


def test_a_run_without_a_success_has_no_latencies() -> None:
    summary = results.summarize(plan(count=1), [row(0, 1, 0, 10, "reset")], elapsed_ns=MS)
    assert summary.latency_ns == {}
    assert "failed 1" in results.as_text(summary)


def test_every_put_is_a_row_that_the_store_knows(store: LoopbackStore) -> None:
    summary, rows = store.do(load.run(plan(), credentials(store)))
    assert (summary.operations_count, summary.failures_count, summary.retries_count) == (20, 0, 0)
    logged = {line["transaction_id"]: line for line in store.log("proxy") if "/bench/" in line["path"]}
    assert logged.keys() == {row.transaction_id for row in rows}
    for done in rows:
        line = logged[done.transaction_id]
        assert line["peer"] == f"127.0.0.1:{done.local_port}"
        assert done.start_ns <= line["start_ns"] < done.end_ns
        assert (line["bytes_in"], done.status, done.attempt) == (1000, 201, 1)
    assert len({row.local_port for row in rows}) == 4


def test_get_puts_what_is_missing_and_checks_what_it_reads(store: LoopbackStore) -> None:
    summary, _ = store.do(load.run(plan("get", count=5), credentials(store)))
    assert (summary.operations_count, summary.failures_count) == (5, 0)
    assert summary.bytes_per_s > 0
    headers = {"X-Auth-Token": store.token()}
    store.ask("PUT", "/v1/AUTH_test/bench/object-000003", headers, b"?" * 1000)
    summary, rows = store.do(load.run(plan("get", count=6), credentials(store)))
    assert summary.errors == {"wrong_hash": 1}
    assert [row.index for row in rows if row.error] == [3]
    assert sum(line["method"] == "PUT" and "object-" in line["path"] for line in store.log("proxy")) == 7


def test_a_failing_store_costs_retries_and_then_a_failure(store: LoopbackStore) -> None:
    for host in ("storage1", "storage2", "storage3"):
        store.stop(host, "object")
    summary, rows = store.do(load.run(plan(count=2, retries_max=1), credentials(store)))
    assert (summary.failures_count, summary.retries_count, summary.errors) == (2, 2, {"status": 4})
    assert sorted((row.index, row.attempt, row.status) for row in rows) == [
        (0, 1, 503),
        (0, 2, 503),
        (1, 1, 503),
        (1, 2, 503),
    ]


def one_attempt(store: LoopbackStore, port: int) -> RequestRow:
    async def attempt() -> RequestRow:
        worker = Worker(Access(f"http://127.0.0.1:{port}/v1/AUTH_test", "token"))
        try:
            return await worker.attempt(Order("put", 0, "c", "o", b"x"), 1)
        finally:
            await worker.close()

    return store.do(attempt())


def test_errors_are_told_apart(store: LoopbackStore, silent_port: int) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert one_attempt(store, closed.getsockname()[1]).error == "connect_refused"
    assert one_attempt(store, silent_port).error == "reset"
    proxy = one_attempt(store, store.topology.service("proxy").port)
    assert (proxy.error, proxy.status) == ("status", 401)


def test_a_store_that_is_not_there_is_one_line(store: LoopbackStore) -> None:
    store.stop("storage1", "auth")
    with pytest.raises(NotRunningError, match="does not answer"):
        store.do(load.run(plan(), credentials(store)))


def test_a_wrong_key_is_one_line(store: LoopbackStore) -> None:
    with pytest.raises(NotRunningError, match="answered 401"):
        store.do(load.run(plan(), Credentials(store.auth_url, "test:tester", "wrong")))


def test_the_command_writes_what_it_is_asked_for(store: LoopbackStore, tmp_path) -> None:
    summary_file, rows_file = tmp_path / "summary.json", tmp_path / "rows.csv"
    argv = ["run", "put", "--count", "7", "--size", "10", "--auth", store.auth_url]
    done = CliRunner().invoke(command, [*argv, "--json", str(summary_file), "--requests", str(rows_file)])
    assert done.exit_code == 0, done.output
    summary = json.loads(summary_file.read_text("utf-8"))
    rows = list(csv.DictReader(io.StringIO(rows_file.read_text("utf-8"))))
    assert (summary["operations_count"], len(rows)) == (7, 7)
    assert list(summary["latency_ns"]) == ["50", "60", "80", "90", "95", "99", "99.9", "100"]
    assert {row["transaction_id"][:2] for row in rows} == {"tx"}
    assert all(int(row["end_ns"]) - int(row["start_ns"]) == int(row["latency_ns"]) > 0 for row in rows)
    assert summary["slowest"][0]["transaction_id"] in done.output
