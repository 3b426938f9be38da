"""`tracer bench` as an operator uses it, on a real store on loopback."""

import csv
import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from storage_cluster.bench import cluster_store, commands, formats
from storage_cluster.bench.commands import command
from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.model import StorageConfig
from storage_cluster.bench.results import folder, rows
from storage_cluster.bench.storage.opening import Login
from storage_cluster.bench.storage.swift import Credentials
from storage_cluster.errors import NotRunningError
from storage_cluster.hosts.cluster import CacheStatus, ClusterStatus, GatewayStatus, HostStatus
from testkit.loopback_store import CALM, LoopbackStore

FILES = Path(__file__).with_name("workloads")
ONLY = "main.workers=2,main.main.write.sizes=c(9)B"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackStore]:
    """One store for all of them."""
    with LoopbackStore(tmp_path_factory.mktemp("store"), intervals=CALM) as running:
        yield running


def bench(*argv: object) -> Result:
    return CliRunner().invoke(command, [str(part) for part in argv])


def test_put_writes_what_it_is_asked_for(store: LoopbackStore, tmp_path: Path) -> None:
    summary_file, rows_file = tmp_path / "summary.json", tmp_path / "rows.csv"
    done = bench(
        "run", "put", "--count", 7, "--size", 10, "--concurrency", 3, "--auth", store.auth_url, "--json", summary_file,
        "--requests", rows_file,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    summary = json.loads(summary_file.read_text("utf-8"))
    rows = [row for row in csv.DictReader(io.StringIO(rows_file.read_text("utf-8"))) if row["stage"] == "put"]
    assert (summary["operations"][-1]["operations_count"], len(rows)) == (7, 7)
    assert list(summary["operations"][-1]["response_ns"]) == ["50", "60", "80", "90", "95", "99", "99.9", "100"]
    logged = {line["transaction_id"]: line for line in store.log("proxy")}
    for row in rows:
        line = logged[row["transaction_id"]]
        assert line["peer"] == f"127.0.0.1:{row['local_port']}"
        assert int(row["start_ns"]) <= line["start_ns"] < int(row["end_ns"])
        assert (row["status"], row["attempt"], line["bytes_in"]) == ("201", "1", 10)
    assert summary["slowest"][0]["transaction_id"] in done.output


def test_a_run_s_folder_holds_no_key(store: LoopbackStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["run", "put", "--count", "1", "--size", "1", "--auth", store.auth_url, "--key", "testing"]
    monkeypatch.setattr(sys, "argv", ["tracer", "bench", *words])
    assert bench(*words, "-o", tmp_path / "run").exit_code == 0
    kept = [path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert any(b"--key xxxxxxx" in each for each in kept)
    assert not any(b"--key testing" in each for each in kept)


def test_get_after_put(store: LoopbackStore) -> None:
    argv = ("run", "get", "--count", 3, "--size", 9, "--container", "other", "--auth", store.auth_url)
    assert bench(*argv).exit_code == 0
    store.ask("PUT", "/v1/AUTH_test/other/object-000001", {"X-Auth-Token": store.token()}, b"?" * 9)
    done = bench(*argv)
    assert done.exit_code == 1
    assert "attempts that failed: wrong_hash 1" in done.output


def test_a_workload_file_with_other_parameters(store: LoopbackStore, tmp_path: Path) -> None:
    done = bench(
        "run", FILES / "open.toml", "--auth", store.auth_url, "-o", tmp_path / "runs", "--set", "main.runtime_s=0.2",
        "--set", "main.closure_delay_s=0", "--sweep", "main.workers=1,2", "--sweep", "main.main.write.sizes=c(5)B",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    names = ["main.workers=1,main.main.write.sizes=c(5)B", "main.workers=2,main.main.write.sizes=c(5)B"]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == names
    run = folder.load(tmp_path / "runs" / names[1])
    assert run.info.parameters["main.workers"] == "2"
    assert {row.bytes for row in run.rows() if row.operation == "write"} == {5}


def test_a_report_in_every_form(store: LoopbackStore, tmp_path: Path) -> None:
    bench("run", "put", "--count", 4, "--auth", store.auth_url, "-o", tmp_path / "run")
    said = {
        form: bench("report", tmp_path / "run", "--format", form).output
        for form in ("text", "cosbench", "ssbench", "json")
    }
    assert said["text"].startswith("put: done\n")
    assert said["cosbench"].splitlines()[2].startswith("s2-put,put,write,4,4000,")
    assert "TOTAL\n       Count:     4  (   0 error;" in said["ssbench"]
    assert json.loads(said["json"])["state"] == "done"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("run", "none.xml"), "none.xml cannot be read (No such file or directory); give a workload file"),
        (("run", FILES / "sample.xml", "--set", "main.x=1"), "main.x is nothing in this workload"),
        (("run", FILES / "sample.xml", "--sweep", "main.workers"), "main.workers is not PARAMETER=VALUE"),
        (("run", "put", "--auth", "http://127.0.0.1:1/auth/v1.0"), "does not answer (connect_refused)"),
        (("run", "put", "--auth", "http://127.0.0.1:1/auth/v1.0", "--json", "/none/x"), "/none/x cannot be written"),
        (("report", "/none"), "cannot be read"),
    ],
)
def test_what_an_operator_can_mend_is_one_line(
    argv: tuple[object, ...], said: str, monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    done = bench(*argv)
    assert done.exit_code != 0
    assert said in str(done.exception)
    assert len(str(done.exception).splitlines()) == 1


def test_options_of_put_and_get_are_refused_with_a_file() -> None:
    done = bench("run", FILES / "sample.xml", "--count", 3)
    assert done.exit_code == 2
    assert "--count is for put and get; for a file use --set" in done.output


def test_a_wrong_key_is_one_line(store: LoopbackStore) -> None:
    done = bench("run", "put", "--auth", store.auth_url, "--key", "wrong")
    assert "answered 401 to test:tester" in str(done.exception)


def test_a_failing_store_costs_retries_and_then_a_failure(store: LoopbackStore) -> None:
    hosts = ("storage1", "storage2", "storage3")
    for host in hosts:
        store.stop(host, "object")
    done = bench("run", "put", "--count", 2, "--retries", 1, "--container", "failing", "--auth", store.auth_url)
    for host in hosts:
        store.restart(host, "object")
    assert done.exit_code == 1
    assert "attempts that failed: status_503 4" in done.output
    assert "2 failed, 2 retries" in done.output


def start_run(store: LoopbackStore, where: Path) -> subprocess.Popen[str]:
    """A long run in a process of its own, that has done something in its main stage; its folder is `where`."""
    argv = ["run", str(FILES / "open.toml"), "--auth", store.auth_url, "-o", str(where), "--set", "main.runtime_s=60"]
    argv += ["--sweep", "main.workers=2", "--sweep", "main.main.write.sizes=c(9)B"]
    running = subprocess.Popen([sys.executable, "-m", "tracer", "bench", *argv], stdout=subprocess.PIPE, text=True)
    file = where / ONLY / rows.FILE_NAME
    while not (file.exists() and file.stat().st_size and any(row.stage == "main" for row in rows.read_rows(file))):
        assert running.poll() is None
    return running


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_called_off_reports_what_was_done(store: LoopbackStore, tmp_path: Path, number: int) -> None:
    running = start_run(store, tmp_path)
    running.send_signal(number)
    said, _ = running.communicate(timeout=30)
    assert running.returncode == 1
    assert "an open loop: cancelled (called off in stage main)" in said
    assert folder.load(tmp_path / ONLY).info.state == "cancelled"


def test_a_run_that_is_killed_can_be_reported(store: LoopbackStore, tmp_path: Path) -> None:
    running = start_run(store, tmp_path)
    running.kill()
    running.communicate()
    said = bench("report", tmp_path / ONLY).output
    assert said.startswith("an open loop: running\n")
    assert "\nmain (2 workers)\n" in said


@pytest.mark.parametrize(
    ("endpoint", "is_inside"),
    [("http://10.77.0.20:8080", True), ("http://10.77.0.21:8080", False), ("", False)],
    ids=["the cluster's", "another", "none"],
)
def test_a_store_that_is_a_server_of_the_cluster_is_asked_on_the_client_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str, *, is_inside: bool
) -> None:
    file = tmp_path / "w.xml"
    config = f"endpoint={endpoint}" if endpoint else "payload=signed"
    file.write_text(
        f'<workload name="w"><storage type="s3" config="{config}" /><workflow><workstage name="init">'
        '<work type="init" workers="1" config="containers=c(1)" /></workstage></workflow></workload>'
    )
    workload, _ = formats.load(file)
    host = HostStatus("proxy", ("10.77.0.20",), (), (), (), 1)
    running = ClusterStatus(True, "", "client", {}, (host,))
    monkeypatch.setattr(commands.cluster, "status", lambda _: running)
    assert cluster_store.is_of_cluster(workload, None) == is_inside
    named = Login(StorageConfig("s3", (("endpoint", endpoint),)))
    assert cluster_store.is_of_cluster(workload, named) == is_inside
    assert not cluster_store.is_of_cluster(workload, Login(Credentials(endpoint, "u", "k")))

    def not_running(_: Path) -> ClusterStatus:
        raise NotRunningError("no cluster is up", "run: tracer cluster up")

    monkeypatch.setattr(commands.cluster, "status", not_running)
    assert not cluster_store.is_of_cluster(workload, named)


@pytest.mark.parametrize(
    ("config", "named"),
    [("payload=signed", False), ("endpoint=http://127.0.0.1:9;payload=signed", True)],
    ids=["no-endpoint", "endpoint"],
)
def test_an_s3_file_without_an_endpoint_is_for_the_clusters_gateway(
    tmp_path: Path, config: str, *, named: bool
) -> None:
    file = tmp_path / "w.xml"
    file.write_text(
        f'<workload name="w"><storage type="s3" config="{config}" /><workflow><workstage name="init">'
        '<work type="init" workers="1" config="containers=c(1)" /></workstage></workflow></workload>'
    )
    workload, _ = formats.load(file)
    assert cluster_store.names_its_store(workload, on_cluster=False) == named
    assert not cluster_store.names_its_store(workload, on_cluster=True)
    gateway = GatewayStatus("http://10.0.0.1:8085", "test:tester", "testing", CacheStatus())
    running = ClusterStatus(True, "", "client", {}, (), s3=(gateway,))
    storage = cluster_store.store_of(running, workload).credentials
    assert isinstance(storage, StorageConfig) and storage.kind == "s3"
    assert [storage.option(name) for name in ("endpoint", "access_key", "secret_key", "payload")] == [
        "http://10.0.0.1:8085", "test:tester", "testing", "signed"
    ]  # fmt: skip
    with pytest.raises(WorkloadError, match="no S3 gateway"):
        cluster_store.store_of(ClusterStatus(True, "", "client", {}, ()), workload)
