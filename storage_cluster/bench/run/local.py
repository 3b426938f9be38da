"""Runs a whole workload in this process, for the command."""

import asyncio
import dataclasses
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from storage_cluster.bench import use
from storage_cluster.bench.engine.connection import Timeouts
from storage_cluster.bench.fault_marks import fault_marks
from storage_cluster.bench.model import Stage, Workload
from storage_cluster.bench.results import folder as folders
from storage_cluster.bench.results.folder import Run, RunInfo
from storage_cluster.bench.results.recorder import Recorder
from storage_cluster.bench.run.stage import Runner, verdicts
from storage_cluster.bench.storage.opening import Login, check

Watch = Callable[[Stage, Recorder], None]
"""Called a few times per second with the stage's progress."""
WATCH_INTERVAL_S = 0.5
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run(
    workload: Workload,
    folder: Path,
    info: RunInfo,
    *,
    login: Login | None = None,
    seed: int = 1,
    timeouts: Timeouts = Timeouts(),  # noqa: B008  frozen
    watch: Watch | None = None,
    sampler: use.Sampler | None = None,
) -> Run:
    """Run it into a new folder. Raises: WorkloadError, NotRunningError, RunError."""
    if login is None:
        for work in (work for stage in workload.stages for work in stage.works):
            check(work.storage, work.auth)
    folders.create(folder)
    recorder = Recorder(folder)
    runner = Runner(recorder, seed=seed, login=login, timeouts=timeouts)
    folders.save(folder, info, recorder.tally)
    try:
        async with use.sampling(sampler, folder / use.FILE_NAME):
            info = await _stages(workload, folder, info, runner, recorder, watch)
    finally:
        recorder.close()
    info = dataclasses.replace(info, ended_ns=time.time_ns())
    if sampler is not None:
        info = dataclasses.replace(info, marks=(*info.marks, *fault_marks(info.started_ns, info.ended_ns)))
    folders.save(folder, info, recorder.tally)
    return Run(info, recorder.tally, folder)


async def _stages(
    workload: Workload, folder: Path, info: RunInfo, runner: Runner, recorder: Recorder, watch: Watch | None
) -> RunInfo:
    called_off = _on_interrupt(runner)
    for number, stage in enumerate(workload.stages):
        started_ns = time.time_ns()
        info = folders.with_stage(info, number, started_ns, 0)
        folders.save(folder, info, recorder.tally)
        watching = asyncio.create_task(_watch_progress(watch, stage, recorder)) if watch else None
        try:
            await runner.run(stage)
        finally:
            if watching:
                watching.cancel()
        info = folders.with_stage(info, number, started_ns, time.time_ns())
        folders.save(folder, info, recorder.tally)
        failed = verdicts(stage, recorder.tally)
        if called_off():
            return dataclasses.replace(info, state="cancelled", note=f"called off in stage {stage.name}")
        if failed:
            return dataclasses.replace(info, state="failed", note="; ".join(map(str, failed)))
    return dataclasses.replace(info, state="done")


def _on_interrupt(runner: Runner) -> Callable[[], bool]:
    """Ctrl-C, SIGTERM or SIGHUP ends the run in good order, with a report of what was done. A second one ends the
    process.

    SIGHUP that is ignored, as nohup has it, stays so.
    """
    loop = asyncio.get_running_loop()
    called: list[bool] = []
    has_hangup = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    ending = [number for number in _ENDING if has_hangup or number != signal.SIGHUP]

    def stop() -> None:
        called.append(True)
        for number in ending:
            loop.remove_signal_handler(number)
        runner.stop()

    if threading.current_thread() is threading.main_thread():
        for number in ending:
            loop.add_signal_handler(number, stop)
    return lambda: bool(called)


async def _watch_progress(watch: Watch, stage: Stage, recorder: Recorder) -> None:
    while True:
        await asyncio.sleep(WATCH_INTERVAL_S)
        watch(stage, recorder)
