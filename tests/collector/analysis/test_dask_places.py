"""An analysis on a Dask cluster: the same trace as here, what is refused, and what happens when processes end."""

import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dask.config
import pytest
from click.testing import CliRunner
from distributed import LocalCluster

from collector.analysis.dask_places import scheduler_address
from collector.commands import replay
from collector.execution import dask_engine
from collector.execution.dask_engine import DaskEngine
from tests.collector.analysis.test_shared_places import BUNDLED, contents
from tests.helpers.polling import wait_for
from tracer.errors import InputError, ResourceError, ServiceError

NOWHERE = "tcp://127.0.0.1:1"


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """A running cluster of two workers."""
    local = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with LocalCluster(n_workers=2, threads_per_worker=1, **local) as cluster:
        yield cluster.scheduler_address


def replay_bundled(place: Path, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(replay.command, ["--quiet", "-o", str(place), *options, str(BUNDLED)])
    return done.exit_code, done.output


def test_a_running_cluster_makes_the_same_trace(tmp_path: Path, scheduler: str) -> None:
    code, said = replay_bundled(tmp_path / "here")
    assert code == 0, said
    engine = scheduler.replace("tcp://", "dask://")
    (tmp_path / "scratch").mkdir()
    code, said = replay_bundled(tmp_path / "there", "--engine", engine, "--scratch", str(tmp_path / "scratch"))
    assert code == 0, said
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert list((tmp_path / "scratch").iterdir()) == []


def _once(mark: Path, do: Callable[[], None]) -> None:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    do()


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class EndsOnce:
    """Work whose process is killed the first time."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __call__(self, number: int) -> int:
        if number == 2:
            _once(self.mark, _end)
        return number * 10


class EndsAlways:
    """Work that no process survives."""

    def __call__(self, number: int) -> int:
        _end()
        return number


class Fails:
    """Work that an operator can mend."""

    def __call__(self, number: int) -> int:
        raise InputError(f"partition {number} is bad", "take another")


def test_a_worker_that_ends_costs_only_time(tmp_path: Path, scheduler: str) -> None:
    with DaskEngine(scheduler, tmp_path) as engine:
        found: list[tuple[int, int]] = []
        engine.run(EndsOnce(tmp_path / "mark"), range(6), lambda *each: found.append(each))
    assert found == [(number, number * 10) for number in range(6)]
    assert (tmp_path / "mark").exists(), "it was killed"


def test_errors_of_work_come_back_whole(tmp_path: Path, scheduler: str) -> None:
    with DaskEngine(scheduler, tmp_path) as engine, pytest.raises(InputError) as caught:
        list(engine.results(Fails(), [7]))
    assert (caught.value.what, caught.value.next_step) == ("partition 7 is bad", "take another")


def test_work_that_no_worker_survives_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dask_engine.SETTINGS, "distributed.scheduler.allowed-failures", 0)
    with DaskEngine(None, tmp_path, workers=1) as engine, pytest.raises(ResourceError, match="on the same partition"):
        list(engine.results(EndsAlways(), [1]))


def test_what_was_wrong_is_said_though_the_cluster_does_not_end_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(LocalCluster):
        def close(self, timeout: float | None = None) -> None:
            super().close(timeout)
            if timeout is not None:
                raise TimeoutError

    monkeypatch.setattr(dask_engine, "LocalCluster", Slow)
    with DaskEngine(None, tmp_path, workers=1) as engine, pytest.raises(InputError, match="partition 7 is bad"):
        list(engine.results(Fails(), [7]))


@contextmanager
def _own_cluster(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A scheduler in a process of its own, with a worker."""
    dask, place = [sys.executable, "-m", "dask"], folder / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with (
        subprocess.Popen(
            [*dask, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", place],
            **quiet,
        ) as scheduler,
        subprocess.Popen(
            [*dask, "worker", "--scheduler-file", place, "--nthreads", "1", "--no-dashboard", "--no-nanny"],
            env=os.environ | {"PYTHONPATH": str(BUNDLED.parents[1])}, cwd=folder, **quiet,
        ) as worker,
    ):  # fmt: skip
        try:
            wait_for(lambda: place.exists() and place.read_text().rstrip().endswith("}"), "the scheduler's whole file")
            yield json.loads(place.read_text())["address"], scheduler
        finally:
            for process in (worker, scheduler):
                process.kill()


class WaitsForever:
    """Work that does not end."""

    def __call__(self, number: int) -> None:
        time.sleep(600)


def test_a_scheduler_that_ends(tmp_path: Path) -> None:
    with _own_cluster(tmp_path) as (address, scheduler), DaskEngine(address, tmp_path) as engine:
        threading.Timer(1.0, scheduler.kill).start()
        with pytest.raises(ResourceError, match=r"Dask's scheduler was lost; .*nothing was written"):
            list(engine.results(WaitsForever(), [1]))


def test_dask_itself_says_nothing_meanwhile(tmp_path: Path, scheduler: str) -> None:
    """It would log stack traces of its attempts to reach a scheduler that ended, ahead of our line."""
    shown, log = io.StringIO(), logging.getLogger("distributed")
    handler = logging.StreamHandler(shown)
    log.addHandler(handler)
    try:
        with DaskEngine(scheduler, tmp_path):
            log.error("inside")
        log.error("after it")
    finally:
        log.removeHandler(handler)
    assert shown.getvalue() == "after it\n"


def test_a_worker_that_cannot_run_this_program(tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise ModuleNotFoundError("No module named 'collector'")

    monkeypatch.setattr(dask_engine, "_look_around", refuse)
    with pytest.raises(InputError, match=r"cannot run twintap \(No module named 'collector'\); install twintap"):
        DaskEngine(scheduler, tmp_path)


def test_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("none")
    for settings in ({"ca-file": str(tmp_path / "bad.pem")}, {"ca-file": str(tmp_path / "absent.pem")}, {}):
        named = {f"distributed.comm.tls.{name}": value for name, value in settings.items()}
        with dask.config.set(named), pytest.raises(InputError, match="no certificates that can be used"):
            DaskEngine("tls://127.0.0.1:1", tmp_path)


def test_what_is_no_engine_is_refused() -> None:
    assert scheduler_address("dask://") is None
    assert scheduler_address("dask://[::1]:8786") == "tcp://[::1]:8786"
    for engine in ("dask", "dask:/host:8786", "dask://host", "dask://host:x", "spark://host:7077", "tcp://host:8786"):
        with pytest.raises(InputError, match="is no engine"):
            scheduler_address(engine)


def test_a_scheduler_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_engine, "CONNECT_S", 0.5)
    with pytest.raises(ServiceError, match=r"no Dask scheduler answers at tcp://127.0.0.1:1 .*start one"):
        DaskEngine(NOWHERE, tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--scratch", "scratch"), "--scratch is for worker processes"),
        (("--engine", "dask://127.0.0.1:1", "--workers", "2"), "--workers starts a cluster here"),
        (("--workers", "2", "--scratch", "/dev/null"), "/dev/null is no folder; make it"),
        (("--workers", "50000"), "50000 workers are too many for the "),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    done = CliRunner().invoke(replay.command, ["--quiet", "-o", str(tmp_path / "trace"), *options, str(BUNDLED)])
    assert isinstance(done.exception, InputError)
    assert words in str(done.exception)
