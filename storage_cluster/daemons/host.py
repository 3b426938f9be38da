"""The daemons of one storage host: one process, a task for each, each with a User-Agent and a log of its own.

`logs/<host>/<daemon>.log` has a line for each pass that did something.
"""

import asyncio
import contextlib
import dataclasses
import os
import sys
import time
import traceback
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NoReturn, TextIO

from storage_cluster.daemons.auditor import DatabaseAuditor, ObjectAuditor
from storage_cluster.daemons.daemon import Daemon, DaemonContext, run_forever
from storage_cluster.daemons.database_replicator import DatabaseReplicator
from storage_cluster.daemons.expirer import Expirer
from storage_cluster.daemons.lifecycle import LifecycleDaemon
from storage_cluster.daemons.object_replicator import ObjectReplicator
from storage_cluster.daemons.reaper import Reaper
from storage_cluster.daemons.reconstructor import Reconstructor
from storage_cluster.daemons.requests import DaemonRequests
from storage_cluster.daemons.updaters import ContainerUpdater, ObjectUpdater
from storage_cluster.ring import Rings, file_of
from storage_cluster.servers.disks.devices import Devices
from storage_cluster.topology import Intervals, Topology


@dataclasses.dataclass(frozen=True)
class Job:
    """How to make a daemon, and the interval between its passes."""

    make: Callable[[DaemonContext], Daemon]
    interval_s: Callable[[Intervals], float]
    is_needed: Callable[[Topology], bool] = lambda _: True
    """Whether it has something to do in a topology."""


JOBS = {
    "object-replicator": Job(ObjectReplicator, lambda intervals: intervals.replicate_s),
    "object-reconstructor": Job(
        Reconstructor, lambda intervals: intervals.replicate_s, lambda topology: topology.policies.have_fragments
    ),
    "container-replicator": Job(
        lambda context: DatabaseReplicator(context, "container"), lambda intervals: intervals.replicate_s
    ),
    "account-replicator": Job(
        lambda context: DatabaseReplicator(context, "account"), lambda intervals: intervals.replicate_s
    ),
    "object-auditor": Job(ObjectAuditor, lambda intervals: intervals.audit_s),
    "container-auditor": Job(
        lambda context: DatabaseAuditor(context, "container"), lambda intervals: intervals.audit_s
    ),
    "account-auditor": Job(lambda context: DatabaseAuditor(context, "account"), lambda intervals: intervals.audit_s),
    "object-updater": Job(ObjectUpdater, lambda intervals: intervals.update_retry_s),
    "container-updater": Job(ContainerUpdater, lambda intervals: intervals.account_report_delay_s),
    "object-expirer": Job(Expirer, lambda intervals: intervals.expire_s),
    "account-reaper": Job(Reaper, lambda intervals: intervals.reap_s),
    "s3-lifecycle": Job(
        LifecycleDaemon, lambda intervals: intervals.lifecycle_s, lambda topology: bool(topology.gateways)
    ),
}


@contextlib.asynccontextmanager
async def running(topology: Topology, host: str, data_dir: Path, logs_dir: Path) -> AsyncIterator[None]:
    """The host's daemons work while the context is open. `data_dir` holds its devices, and lies beside the rings.

    A daemon that fails says why in its log; the others go on, and the failure is raised at the end.
    """
    logs_dir.mkdir(parents=True, exist_ok=True)
    store = topology.host(host).store
    topology = topology.of_store(store)
    async with contextlib.AsyncExitStack() as stack:
        tasks = []
        for name in _names(topology):
            log = stack.enter_context((logs_dir / f"{name}.log").open("a", encoding="utf-8"))
            backend = DaemonRequests(topology, Rings(file_of(data_dir.parent, store)), name)
            stack.push_async_callback(backend.close)
            context = DaemonContext(backend, host, Devices(topology, host, data_dir), _log_writer(log, host, name))
            tasks.append(asyncio.create_task(_work(JOBS[name], context, backend), name=name))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if not isinstance(end, asyncio.CancelledError):
                raise end


def _names(topology: Topology) -> list[str]:
    """The daemons that have something to do in this topology."""
    return [name for name in topology.daemons if JOBS[name].is_needed(topology)]


async def _work(job: Job, context: DaemonContext, requests: DaemonRequests) -> NoReturn:
    try:
        await run_forever(job.make(context), job.interval_s(context.intervals), context.say, requests.begin_pass)
    finally:
        failure = sys.exception()
        if not isinstance(failure, asyncio.CancelledError):
            context.say("".join(traceback.format_exception(failure)))


def _log_writer(log: TextIO, host: str, name: str) -> Callable[[str], None]:
    def say(text: str) -> None:
        log.write(f"{time.strftime('%b %d %H:%M:%S')} {host} {name}[{os.getpid()}]: {text}\n")
        log.flush()

    return say
