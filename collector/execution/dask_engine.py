"""Runs work on a Dask cluster: one that runs already, or one of processes on this machine.

The work of a stage (its function with all that is known of the captures) is written once to the folder that all
processes share, so that Dask only moves its place, numbers of partitions and small results. Dask runs work again whose
worker ended; that is why work may only write to places that can be written again (`execution.shared_folder`).
"""

import logging
import os
import pickle
import signal
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache, partial
from importlib.metadata import version
from multiprocessing import resource_tracker
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import dask.config
from distributed import Client, Future, KilledWorker, LocalCluster
from distributed.comm import CommClosedError
from distributed.security import Security
from distributed.utils import silence_logging_cmgr

from collector.execution.shared_folder import whole_file
from tracer.errors import InputError, ResourceError, ServiceError, TracerError
from tracer.interrupts import defer_interrupts

SCHEME, TLS = "dask", "tls://"
CONNECT_S = 15
CLOSE_S = 30
"""A worker that is just being started again ends only then: seconds, on a busy machine."""
WORKER_BYTES = 2 << 30
"""A worker of a local cluster is ended when it takes 95 % of it."""
WORKER_ENVIRONMENT = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_IO_THREADS": "1"}
SETTINGS = {
    "distributed.worker.memory.target": False,  # secrets and packets go to the shared folder or nowhere
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": 0.9,
    "distributed.scheduler.allowed-failures": 2,
    "distributed.comm.timeouts.connect": f"{CONNECT_S}s",
    "distributed.comm.retry.count": 0,
    "distributed.diagnostics.nvml": False,
}

Job = TypeVar("Job")
Result = TypeVar("Result")


def _nothing() -> None:
    """No preparation."""


class DaskEngine:
    """Runs work on the workers of a Dask cluster; an `execution.engine.Engine`. A context manager.

    Arguments: `address` of a scheduler (`tcp://HOST:PORT`), or None for a cluster of `workers` processes here (None:
    one for each core); `folder`, which all workers share; `prepare`, which each worker calls before its work.
    Raises: `ServiceError` if no scheduler answers there, or it has no worker;
    `InputError` if a worker does not share the folder, or has another version of this program.
    """

    def __init__(
        self, address: str | None, folder: Path, workers: int | None = None, prepare: Callable[[], None] = _nothing
    ) -> None:
        self._folder, self._prepare = folder, prepare
        self._cluster: Any = None
        self._open = ExitStack()
        self._open.enter_context(silence_logging_cmgr(logging.CRITICAL))  # what is lost is said below, in one line
        try:
            self._client = _connect(address) if address else self._start_cluster(workers or os.cpu_count() or 1)
            self._check_workers()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the cluster that was started here; a running one is only left."""
        if client := self.__dict__.pop("_client", None):
            client.close(timeout=2)
        if self._cluster is not None:
            with suppress(TimeoutError):  # its processes end with this one at the latest
                self._cluster.close(timeout=CLOSE_S)
            self._cluster = None
        self._open.close()

    def run(
        self,
        work: Callable[[int], Result],
        parts: Iterable[int],
        store: Callable[[int, Result], None],
        *,
        at_once: int | None = None,
    ) -> None:
        """As `Engine`. A worker has one thread, so it has one part at a time, whatever `at_once` is."""
        numbers = list(parts)
        for number, result in zip(numbers, self.results(work, numbers), strict=True):
            store(number, result)

    def results(self, work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[Result]:
        """What `work` returns for each job, in their order.

        Raises: what `work` raises; `ResourceError` if the scheduler is lost, or a worker again and again.
        """
        place = self._folder / f"{uuid.uuid4().hex}.work"
        with whole_file(place) as path:
            path.write_bytes(pickle.dumps((work, self._prepare)))
        with _lost_processes():
            futures = self._client.map(partial(_do, place), jobs, pure=False, retries=0)
            try:
                while futures:
                    yield _result(futures.pop(0))
            finally:
                self._client.cancel(futures)

    def _start_cluster(self, workers: int) -> Client:
        with dask.config.set(SETTINGS), _not_for_workers():
            self._cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                memory_limit=WORKER_BYTES,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                local_directory=str(self._folder),
                env=WORKER_ENVIRONMENT,
                silence_logs=logging.CRITICAL,
                security=Security.temporary(),  # other users of this machine could run code here as this one
            )
            return Client(self._cluster, set_as_default=False)

    def _check_workers(self) -> None:
        """Refuse workers that would do other work than this process, or could not."""
        mark = self._folder / f"{uuid.uuid4().hex}.mark"
        mark.write_text("")
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_S)
        except TimeoutError:
            what, next_step = "the Dask scheduler has no worker", "start some: dask worker SCHEDULER --nthreads 1"
            raise ServiceError(what, next_step) from None
        with _lost_processes():
            found = self._client.run(_look_around, mark, on_error="return")
        for worker, about in sorted(found.items()):
            if isinstance(about, BaseException):
                what = f"Dask's worker {worker} cannot run twintap ({_first_line(about)})"
                raise InputError(what, f"install twintap {version('twintap')} there, with its extra `scale`")
            tool_version, sees_mark = about
            if tool_version != version("twintap"):
                what = f"Dask's worker {worker} has version {tool_version} of twintap, this is {version('twintap')}"
                raise InputError(what, "install the same version there")
            if not sees_mark:
                what = f"Dask's worker {worker} cannot write to {self._folder}"
                raise InputError(what, "give --scratch a folder that this machine and all workers share")
        mark.unlink()


@contextmanager
def _not_for_workers() -> Iterator[None]:
    """A context in which processes are started that Ctrl-C in a terminal does not reach: this one ends them.

    They inherit the mask of the thread that starts them, as do threads: workers that are started later, too.
    """
    resource_tracker.ensure_running()  # to start it would unblock the signal
    with defer_interrupts():
        earlier = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, earlier)


def _connect(address: str) -> Client:
    with_tls = address.startswith(TLS)
    if with_tls:
        _check_certificates()
    try:
        return Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        what = f"no Dask scheduler answers at {address} ({_first_line(error)})"
        its_tls = "if it runs, its certificates are of another authority" if with_tls else "if it runs, it may want TLS"
        raise ServiceError(what, f"start one: dask scheduler; {its_tls} (docs/scale.md)") from None


def _check_certificates() -> None:
    """Raises: `InputError` if what Dask's configuration names for a client of TLS is not there or is not whole."""
    try:
        found = Security().get_connection_args("client")["ssl_context"]
        reason = "" if found else "no certificate or key of a client is named"
    except (OSError, ValueError, TypeError) as error:
        reason = _first_line(error)
    if reason:
        what = f"Dask's configuration (distributed.comm.tls) gives no certificates that can be used ({reason})"
        raise InputError(what, "name ca-file, client.cert and client.key there, or none of them")


def _look_around(mark: Path) -> tuple[str, bool]:
    """This worker's version of the program, and whether it sees and may write the folder."""
    probe = mark.with_suffix(f".{uuid.uuid4().hex}")
    try:
        probe.write_text("")
        probe.unlink()
    except OSError:
        return version("twintap"), False
    return version("twintap"), mark.exists()


@lru_cache(maxsize=1)
def _work_at(place: Path) -> Callable[[Any], Any]:
    work, prepare = pickle.loads(place.read_bytes())
    prepare()
    return work


def _do(place: Path, job: Any) -> Any:
    """Do one job, in a worker."""
    return _work_at(place)(job)


def _result(future: Future) -> Any:
    try:
        return future.result()
    finally:
        future.release()


@contextmanager
def _lost_processes() -> Iterator[None]:
    """A context in which lost workers and schedulers are an operator's error."""
    try:
        yield
    except TracerError:
        raise
    except KilledWorker as error:
        what = f"{error.allowed_failures + 1} of Dask's workers ended, one after the other, on the same partition"
        next_step = "see their logs: if memory ran out, give them more, or analyse shorter times (--from, --to)"
        raise ResourceError(what, next_step) from None
    except (CancelledError, CommClosedError, TimeoutError, ConnectionError):
        raise ResourceError("Dask's scheduler was lost", "run it again: nothing was written") from None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
