"""The whole pipeline over captures in a folder, in a process of its own, and how it went.

The process is forked from one that has imported everything and started no thread, so that a run costs no start. It is
ended when it takes more memory or CPU time than any capture may need, or waits for ever; peak memory is the kernel's
count.
"""

import contextlib
import io
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from benchmarks.fuzz.systems import Captures
from collector.commands import replay, report
from collector.queries import open_trace
from collector.trace.reading import Trace
from collector.trace.schema import TABLES
from tracer import cli

PRELOADED = (replay, report)
"""What the commands import is here before any process is forked."""
MOST_MEMORY_BYTES = 2 << 30
MOST_CPU_S = 60
MOST_IDLE_S = 300
"""Without any CPU time: such a run waits for ever. How long one takes in all depends on what else the machine does."""
POLL_S = 0.05
EXIT_OPERATOR = 2
TRACE = "trace"
RESULT = "result.json"
MODES = ("named", "files", "folder")
"""How captures are given: as HOST=FILE, as files whose stems are hosts, or as the folder."""


@dataclass(frozen=True, slots=True)
class Run:
    """How a run of the pipeline went."""

    status: int  # exit status of the first command that failed; negative: the signal that ended it
    said: str  # on standard error
    printed: str  # on standard output
    peak_bytes: int
    cpu_s: float
    observed: dict[str, object] = field(default_factory=dict)
    """What the rules compare, of a run that made a trace: as `_observations`."""


def write(captures: Captures, folder: Path, mode: str) -> list[str]:
    """Put the captures into the folder; the arguments of `tracer replay` for them."""
    given = []
    for number, (host, data) in enumerate(captures.hosts.items()):
        name = host if mode != "named" and _may_be_a_file(host) else f"capture{number}"
        path = folder / f"{name}.cap"
        path.write_bytes(data)
        given.append(f"{host}={path}" if mode == "named" else str(path))
    for name, content in captures.beside.items():
        (folder / name).write_bytes(content)
    return [str(folder)] if mode == "folder" else given


def _may_be_a_file(host: str) -> bool:
    return bool(host) and "/" not in host and len(os.fsencode(host)) < 200


def run(arguments: Sequence[str], folder: Path, *, html: bool) -> Run:
    """`tracer replay ARGUMENTS` into the folder, then what reads the trace; with `html` the report as JSON and page."""
    child = os.fork()
    if not child:
        _child(arguments, folder, html=html)
    status, used = _wait_for(child)
    result = folder / RESULT
    observed = json.loads(result.read_text()) if result.exists() else {}
    said, printed = ((folder / name).read_bytes().decode("utf-8", "surrogateescape") for name in ("err", "out"))
    code = os.waitstatus_to_exitcode(status)
    return Run(code, said, printed, used.ru_maxrss << 10, used.ru_utime + used.ru_stime, observed)


def _wait_for(child: int) -> tuple[int, resource.struct_rusage]:
    used_s, used_at_s = 0.0, time.monotonic()
    while True:
        ended, status, used = os.wait4(child, os.WNOHANG)
        if ended:
            return status, used
        now_s, cpu_s = time.monotonic(), _cpu_s(child)
        if cpu_s > used_s:
            used_s, used_at_s = cpu_s, now_s
        if now_s - used_at_s > MOST_IDLE_S or _resident(child) > MOST_MEMORY_BYTES:
            os.kill(child, signal.SIGKILL)
        time.sleep(POLL_S)


def _cpu_s(child: int) -> float:
    """CPU time of all its threads so far."""
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _resident(child: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{child}/statm").read_text().split()[1]) * resource.getpagesize()
    return 0


def _child(arguments: Sequence[str], folder: Path, *, html: bool) -> None:
    """Never returns."""
    code = 70
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for name, descriptor in (("out", 1), ("err", 2)):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), descriptor)
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(io.FileIO(number, "w", closefd=False), encoding="utf-8") for number in (1, 2)
        )
        code = _commands(arguments, folder, html=html)
    finally:
        if sys.exc_info()[0]:  # whatever it is, it is to be reported
            traceback.print_exc()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _commands(arguments: Sequence[str], folder: Path, *, html: bool) -> int:
    trace = str(folder / TRACE)
    commands = [("replay", "--quiet", "-o", trace, "--", *arguments)]
    if html:
        commands.append(("report", "--json", "--html", str(folder / "page.html"), trace))
    for words in commands:
        if code := _tracer(*words):
            return code
    _check_texts(trace)
    open_trace(trace)
    (folder / RESULT).write_text(json.dumps(_observations(trace)))
    return 0


def _tracer(*words: str) -> int:
    """The exit status of one command."""
    sys.argv = ["tracer", *words]
    try:
        cli.main()
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 1
    return 0


def _check_texts(trace: str) -> None:
    """No column of a trace holds what is no UTF-8, or a control character that a terminal would obey."""
    for name in TABLES:
        table = Trace(trace).read(name)
        table.validate(full=True)
        for column in table.column_names:
            for text in _texts(table[column]):
                assert text.isprintable(), f"{name}.{column} holds {text!r}"


def _texts(column: pa.ChunkedArray) -> set[str]:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return set()
    return set(filter(None, column.unique().to_pylist()))


def _observations(trace: str) -> dict[str, object]:
    """Of a trace: `pairs`, each hop's ends and state; `findings`, each one's kind, hosts and count."""
    ends = ["send_host", "send_frame", "receive_host", "receive_frame", "stream_start", "stream_end", "state"]
    hops = Trace(trace).read("hops", ends).to_pydict()
    findings = Trace(trace).read("findings", ["severity", "kind", "host", "peer_host", "count", "text"]).to_pylist()
    return {"pairs": sorted(map(list, zip(*hops.values(), strict=True)), key=repr), "findings": findings}
