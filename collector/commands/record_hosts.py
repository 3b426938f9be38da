"""`tracer record --ssh …`: the recording of any hosts, as its operator sees it."""

import shutil
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import click

from collector.commands.remote_options import RemoteChoice
from collector.remote.preflight import Plan, Problem, check_interfaces, disk_problem, host_line
from collector.remote.progress import progress_line
from collector.remote.recording import (
    WATCH_SECONDS,
    Recording,
    RemoteHost,
    RemoteOptions,
    look_at,
    one_of_each,
    open_hosts,
    own_connections,
)
from collector.remote.starts import StartOptions
from collector.service.recording import ClusterHost, find_program, run_command
from collector.trace.model import CommandInfo
from tracer import _capture
from tracer.errors import ServiceError
from tracer.interrupts import call_on_interrupt
from tracer.secret_rules import without_secrets

LINE_SECONDS = 0.5
"""Between two states of the progress line on a terminal."""
SLOW_LINE_SECONDS = 10.0
"""Between two lines of progress elsewhere, or while a command has the terminal."""
CLEAR_LINE = "\r\x1b[K"


def record_hosts(choice: RemoteChoice, argv: Sequence[str], folder: Path) -> tuple[CommandInfo | None, int]:
    """Record into `folder` while the command runs, without one until Ctrl-C.

    Returns the command, if the trace can place it (this machine was recorded too), and its exit status.
    Raises: InputError; ServiceError if hosts cannot be recorded, or nothing was.
    """
    environment = find_program(argv) if argv else {}
    names = [way.host for way in choice.ways]
    options = RemoteOptions(
        wanted=choice.wanted,
        payload=choice.payload,
        owners=choice.owners,
        interfaces=check_interfaces(choice.interfaces, names),
        goes_on_without=choice.goes_on_without,
    )
    _capture.payload_snaplen(options.payload)  # a wrong one is reported before anything begins
    with open_hosts(choice.ways) as opened:
        hosts = _preflight(opened, options, folder)
        recording = Recording(hosts, folder, _say)
        _refuse_or_say(
            recording.start(StartOptions(options.payload, own_connections(opened), options.owners)), options, len(hosts)
        )
        ran, status = _record_during(recording, argv, environment, _own_name(recording.hosts))
        for line in recording.last_lines():
            _say(line)
        if not any(host.receiver and host.receiver.packets_count for host in recording.hosts):
            raise ServiceError("no packet was recorded on any host", "was there traffic, and on other interfaces?")
    return ran, status


def _preflight(opened: Sequence[RemoteHost], options: RemoteOptions, folder: Path) -> list[RemoteHost]:
    """The hosts that can be recorded; says what captures on each, and what is in the way.

    Raises: ServiceError if there are others, or none.
    """
    problems = look_at(opened, options)
    kept, doubles = one_of_each(opened)
    free = disk_problem(folder, shutil.disk_usage(folder).free)
    named_twice = {problem.host for problem in doubles}
    problems = [problem for problem in problems if problem.host not in named_twice]
    problems += [*doubles, *([free] if free else [])]
    hosts = [host for host in kept if isinstance(host.plan, Plan)]
    for host in hosts:
        assert isinstance(host.plan, Plan)
        _say(host_line(host.way.host, host.facts, host.plan, host.clock))
    _refuse_or_say(problems, options, len(kept))
    return hosts


def _refuse_or_say(problems: Sequence[Problem], options: RemoteOptions, hosts_count: int) -> None:
    """Say all problems. Raises: ServiceError if some stop, and the others are not to be recorded without those."""
    for problem in problems:
        _say(str(problem))
    stopped = len({problem.host for problem in problems if problem.stops})
    if stopped and (not options.goes_on_without or stopped >= hosts_count):
        what = f"{stopped} of {hosts_count} hosts cannot be recorded" if hosts_count > 1 else "it cannot be recorded"
        remedy = "mend that, or record the others: --anyway" if stopped < hosts_count else "mend that and try again"
        raise ServiceError(f"{what}, so nothing was begun", remedy)


def _record_during(
    recording: Recording, argv: Sequence[str], environment: dict[str, str], own_name: str | None
) -> tuple[CommandInfo | None, int]:
    """Run the command, or wait for Ctrl-C, while progress is shown; then end everywhere."""
    hurry, stopped = threading.Event(), threading.Event()
    shown = threading.Thread(target=_show_progress, args=(recording, stopped, bool(argv)), daemon=True)
    ran, status = None, 0
    try:
        shown.start()
        if argv:
            done = run_command(ClusterHost(own_name or "here", (), ()), argv, environment)
            ran, status = (done if own_name else None), done.exit_status
            if not own_name:
                _say("the trace does not place the command, since this machine is not recorded (--here)")
        else:
            _say(f"recording {', '.join(host.way.host for host in recording.hosts)}; Ctrl-C ends it")
            asked: list[bool] = []  # no event: its lock may be held where the signal comes
            with call_on_interrupt(lambda: asked.append(True)):
                while not asked and not recording.ended.wait(WATCH_SECONDS):
                    pass
    finally:
        stopped.set()
        shown.join()
        with call_on_interrupt(hurry.set):
            recording.end(hurry)
    return ran, status


def _show_progress(recording: Recording, stopped: threading.Event, has_command: bool) -> None:
    """A line that changes where nobody else writes on the terminal, else a line now and then."""
    is_live = sys.stderr.isatty() and not has_command
    while not stopped.wait(LINE_SECONDS if is_live else SLOW_LINE_SECONDS):
        line = progress_line(recording.figures())
        if is_live:
            width = shutil.get_terminal_size().columns - 1
            click.echo(f"{CLEAR_LINE}{line[:width]}", err=True, nl=False)
        else:
            _say(line)
    if is_live:
        click.echo(CLEAR_LINE, err=True, nl=False)


def _own_name(hosts: Sequence[RemoteHost]) -> str | None:
    """This machine's name in the trace, if it is recorded."""
    return next((host.way.host for host in hosts if host.way.kind == "here"), None)


def _say(line: str) -> None:
    start = CLEAR_LINE if sys.stderr.isatty() else ""
    click.echo(without_secrets(f"{start}tracer: {line}"), err=True)
