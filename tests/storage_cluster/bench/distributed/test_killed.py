"""SIGKILL of a driver and of the controller in the middle of a run: what was done until then can be loaded."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
from click.testing import CliRunner

from storage_cluster.bench.commands import command
from storage_cluster.bench.errors import RunError
from storage_cluster.bench.results import folder, rows

ROOT = Path(__file__).resolve().parents[4]
PATIENCE_S = 60
WORKLOAD = """
name = "long"
[[stage]]
name = "main"
[[stage.work]]
workers = 4
runtime_s = 100
operations = [{ kind = "write", containers = "c(1)", objects = "s(1,100)", sizes = "c(9)B" }]
"""


@contextlib.contextmanager
def start(*argv: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service in a process of its own, and the address in what it says first."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-m", *argv], stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    ) as running:
        assert running.stdout
        try:
            found = re.search(r"http://\S+?(?=/? )|^\d+$", running.stdout.readline())
            assert found
            yield running, found[0]
        finally:
            running.kill()


def wait_for_rows(*folders: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not all(has_rows(where / rows.FILE_NAME) for where in folders):
        assert time.monotonic() < deadline


def has_rows(file: Path) -> bool:
    try:
        return file.exists() and any(rows.read_rows(file))
    except RunError:  # not even its head is written yet
        return False


def report(where: Path) -> str:
    return CliRunner().invoke(command, ["report", str(where)]).output


def test_what_was_done_survives_a_driver_and_then_the_controller(tmp_path: Path) -> None:
    file = tmp_path / "w.toml"
    file.write_text(WORKLOAD)
    bench = ("tracer", "bench")
    any_port = ("--listen", "127.0.0.1:0")
    with contextlib.ExitStack() as stack:
        _, port = stack.enter_context(start("benchmarks.instant_server", "0"))
        drivers = [
            stack.enter_context(start(*bench, "driver", *any_port, "--name", name, "--data", str(tmp_path / name)))
            for name in ("d1", "d2")
        ]
        urls = [option for _, url in drivers for option in ("--driver", url)]
        controller, url = stack.enter_context(
            start(*bench, "controller", *any_port, *urls, "--data", str(tmp_path / "runs"))
        )
        deadline = time.monotonic() + PATIENCE_S
        while not all(driver["alive"] for driver in httpx.get(f"{url}/api/state", trust_env=False).json()["drivers"]):
            assert time.monotonic() < deadline
        store = ["--auth", f"http://127.0.0.1:{port}/auth/v1.0"]
        said = CliRunner().invoke(command, ["submit", url, str(file), *store])
        run = tmp_path / "runs" / said.output.strip()
        wait_for_rows(run / "d1", run / "d2")

        drivers[1][0].send_signal(signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while not httpx.get(f"{url}/api/runs/{run.name}", trust_env=False).json()["lost"]:
            assert time.monotonic() < deadline
        (own,) = (tmp_path / "d2").iterdir()
        assert report(own).startswith("long: running\n")
        assert folder.load(own).tally.total().operations_count > 0

        controller.send_signal(signal.SIGKILL)
        controller.wait()
        assert "long: running\n" in report(run)
        loaded = folder.load(run)
        assert {row.client_id for row in loaded.rows()} == {"d1", "d2"}
        assert loaded.tally.total().operations_count == sum(1 for _ in loaded.rows())
