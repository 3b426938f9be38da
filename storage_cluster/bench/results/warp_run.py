"""Makes a run's folder of a file of warp's operations, so that all that shows runs shows it, too.

The file is read twice, in bounded memory: for its stages and kinds of operations, then for its rows. Kinds that went on
at the same time are one stage (`warp mixed`); what came before or after, as the uploads that prepare `warp get` in
older versions, is another. Each stage has one work, with as many workers as threads of warp did something in it.

What warp does not record is not made up: the status of answers (`STATUS_UNKNOWN`), retries (its client library makes
them within an operation), ids of requests, ports, connections, the first byte of what is no download, how busy hosts
were. Of its command line only `_KEPT_FLAGS` are kept, with secrets overwritten; its messages of errors become kinds of
errors, and the commonest are kept as notes, likewise.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from storage_cluster.bench.errors import RunError
from storage_cluster.bench.results import folder as folders
from storage_cluster.bench.results.figures import Tally
from storage_cluster.bench.results.folder import WARP, Run, RunInfo, StageInfo, WorkInfo
from storage_cluster.bench.results.rows import FILE_NAME, STATUS_UNKNOWN, Row, RowFile, as_line, clean
from storage_cluster.bench.results.warp import Operation, WarpFile
from tracer.secret_rules import without_secrets

OTHER = "other"
"""The kind of an error that fits none of ours."""
WORK = "warp"
_ROWS_AT_ONCE = 4_096
_THREADS_MAX = 20_000
_CLIENTS_MAX = 1_000
_MESSAGES_MAX = 1_000
_MESSAGES_SHOWN = 5
_MESSAGE_LEN = 160
_MESSAGE_LEN_READ = 4 * _MESSAGE_LEN
_STEP_NS = 1_000_000
_SHIFT_NS_MAX = 24 * 3600 * 10**9
_KEPT_FLAGS = frozenset(
    (
        *("autoterm", "batch", "bucket", "concurrent", "delete-distrib", "disable-multipart", "duration"),
        *("get-distrib", "host", "host-select", "list-existing", "noclear", "noprefix", "obj.generator"),
        *("obj.randsize", "obj.size", "objects", "part.size", "parts", "prefix", "put-distrib", "range", "region"),
        *("rps-limit", "stat-distrib", "tls", "versions", "warp-client"),
    )
)
_FLAG = re.compile(r"(?<=\s)--([a-z0-9.-]+)=((?:(?!\s--).)*)")
_SIZES = "sizes"
"""Our parameter's name for `obj.size`: runs with other sizes are not comparable."""
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("cancelled", r"context canceled"),
        ("connect_refused", r"connection refused"),
        ("connect_timeout", r"dial tcp.*(?:timeout|timed out|deadline)"),
        ("connect_failed", r"no route to host|no such host|is unreachable|dial tcp|too many open files"),
        ("short_body", r"unexpected EOF|unexpected download size|short upload"),
        ("reset", r"connection reset|broken pipe|\bEOF\b|server closed idle connection"),
        ("read_timeout", r"timeout|timed out|deadline exceeded"),
        ("bad_response", r"malformed HTTP|invalid header"),
    )
)

Watch = Callable[[str, int], None]
"""Is called with what is done, and with how many operations."""
_WATCHED = 20_000


@dataclasses.dataclass
class _Kind:
    """What the first reading finds of one kind of operations."""

    count: int = 0
    objects_count: int = 0
    first_ns: int = 0
    last_ns: int = 0
    threads: set[tuple[str, int]] = dataclasses.field(default_factory=set)

    def add(self, made: Operation) -> None:
        """One more operation."""
        self.first_ns = min(self.first_ns, made.start_ns) if self.count else made.start_ns
        self.last_ns = max(self.last_ns, made.start_ns + made.duration_ns)
        self.count += 1
        self.objects_count += made.objects_count
        if len(self.threads) < _THREADS_MAX:
            self.threads.add((made.client_id, made.thread))


@dataclasses.dataclass
class _Survey:
    """What the first reading finds."""

    file: WarpFile
    kinds: dict[str, _Kind] = dataclasses.field(default_factory=dict)
    clients: set[str] = dataclasses.field(default_factory=set)
    messages: Counter[str] = dataclasses.field(default_factory=Counter)
    steps_count: int = 0  # operations in which the wall clock was set

    @classmethod
    def of(cls, path: Path, watch: Watch) -> "_Survey":
        """Read a file. Raises: RunError."""
        made = cls(WarpFile(path))
        for number, each in enumerate(made.file.operations()):
            if number % _WATCHED == 0:
                watch("read", number)
            made.kinds.setdefault(each.op, _Kind()).add(each)
            if len(made.clients) < _CLIENTS_MAX:
                made.clients.add(each.client_id)
            if each.error and (each.error in made.messages or len(made.messages) < _MESSAGES_MAX):
                made.messages[each.error[:_MESSAGE_LEN_READ]] += 1
            made.steps_count += abs(each.end_ns - each.start_ns - each.duration_ns) > _STEP_NS
        return made


def import_run(path: Path, folder: Path, command: str, watch: Watch = lambda doing, count: None) -> Run:
    """Make the run's folder and return the run.

    Arguments: `command`, the one that imports it; `watch` is called now and then with how many operations were "read",
    then "written".
    Cost: some 50 µs an operation; memory does not depend on their number.
    Raises: RunError if the file holds no operations, or the folder cannot be written or is not empty.
    """
    found = _Survey.of(path, watch)
    if not found.kinds:
        raise RunError(f"{path} holds no operation" + _because(found.file), "give the .csv.zst that warp wrote")
    folders.create(folder)
    stages = _stages(found.kinds)
    tally = _write_rows(path, folder / FILE_NAME, {op: name for name, kinds in stages for op in kinds}, watch)
    info = _info(found, stages, command)
    folders.save(folder, info, tally)
    return Run(info, tally, folder)


def _stages(kinds: dict[str, _Kind]) -> list[tuple[str, list[str]]]:
    """Each stage's name and the kinds of operations in it, by time."""
    groups: list[list[str]] = []
    last_ns = 0
    for op, kind in sorted(kinds.items(), key=lambda item: (item[1].first_ns, item[0])):
        if groups and kind.first_ns < last_ns:
            groups[-1].append(op)
        else:
            groups.append([op])
        last_ns = max(last_ns, kind.last_ns)
    names = Counter[str]()
    made = []
    for group in groups:
        name = group[0].lower() if len(group) == 1 else "mixed"
        names[name] += 1
        made.append((name if names[name] == 1 else f"{name}-{names[name]}", group))
    return made


def _write_rows(path: Path, target: Path, stage_of: dict[str, str], watch: Watch) -> Tally:
    tally, lines, file = Tally(), list[str](), RowFile.create(target)
    for number, each in enumerate(WarpFile(path).operations()):
        if number % _WATCHED == 0:
            watch("written", number)
        row = _row(each, number, stage_of.get(each.op, each.op.lower()))
        tally.add(row)
        lines.append(as_line(row))
        if len(lines) == _ROWS_AT_ONCE:
            file.write("".join(lines))
            lines.clear()
    file.write("".join(lines))
    file.close()
    return tally


def _row(made: Operation, number: int, stage: str) -> Row:
    return Row(
        idx=number, thread=made.thread, op=made.op, client_id=_plain(made.client_id), bytes=made.bytes,
        endpoint=_plain(made.endpoint), file=_plain(made.file), error=_kind_of(made.error), start_ns=made.start_ns,
        first_byte_ns=-1 if made.first_byte_ns is None else min(made.first_byte_ns, _SHIFT_NS_MAX),
        duration_ns=made.duration_ns, stage=stage, work=WORK, operation=made.op, status=STATUS_UNKNOWN, attempt=1,
        final=True, measured=True, waited_ns=0, connect_ns=-1, transaction_id="", local_port=0,
        objects_count=made.objects_count,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _plain(text: str) -> str:
    """One cell of a row."""
    return clean(without_secrets(text)) if text else ""


def _kind_of(message: str) -> str:
    if not message:
        return ""
    return next((kind for kind, pattern in _KINDS if pattern.search(message)), OTHER)


def _info(found: _Survey, stages: Sequence[tuple[str, list[str]]], command: str) -> RunInfo:
    program, flags = _command_line(found.file.comment)
    made = tuple(_stage(name, [found.kinds[op] for op in group]) for name, group in stages)
    main = max(stages, key=lambda stage: sum(found.kinds[op].count for op in stage[1]))[0]
    words = [program or f"warp {main}", *(f"--{name}={value}" for name, value in flags.items())]
    settings = {_SIZES if name == "obj.size" else name: value for name, value in flags.items()}
    return RunInfo(
        name=words[0],
        source=WARP,
        command=" ".join(words),
        started_ns=min(stage.started_ns for stage in made),
        stages=made,
        state="done",
        ended_ns=max(stage.ended_ns for stage in made),
        drivers=tuple(sorted(filter(None, map(_plain, found.clients)))),
        notes=tuple(_notes(found, command)),
        workload={f"{main}.{WORK}.{name}": value for name, value in settings.items()},
    )


def _stage(name: str, kinds: Sequence[_Kind]) -> StageInfo:
    threads = len(set().union(*(kind.threads for kind in kinds)))
    first_ns, last_ns = min(kind.first_ns for kind in kinds), max(kind.last_ns for kind in kinds)
    return StageInfo(name, (WorkInfo(WORK, threads, 0.0),), first_ns, last_ns)


def _notes(found: _Survey, command: str) -> Iterator[str]:
    yield f"measured by warp, imported by: {command}"
    yield "not recorded by warp: status of answers, retries, ids of requests, connections, use of hosts"
    if found.file.cut:
        yield "NOT ALL OF IT" + _because(found.file) + "; what comes before is here"
    if found.file.unread_count:
        yield f"{found.file.unread_count:,} lines of the file are no operation and were left out"
    if found.steps_count:
        yield f"the clock of warp's host was set during {found.steps_count:,} of its operations; durations are right"
    for op, kind in found.kinds.items():
        if kind.objects_count != kind.count:
            yield f"{op}: {kind.objects_count:,} objects in {kind.count:,} operations"
    for message, count in found.messages.most_common(_MESSAGES_SHOWN):
        yield f"{count:,} × {_plain(message)[:_MESSAGE_LEN]}"


def _because(file: WarpFile) -> str:
    return f": {file.cut}" if file.cut else ""


def _command_line(comment: str) -> tuple[str, dict[str, str]]:
    """Program and subcommand, and the flags that are kept, of the comment of a file; ("", {}) if it has none."""
    line = next((line for line in comment.splitlines() if _FLAG.search(line) or "warp" in line), "")
    program = line.split(" --", 1)[0].split()
    flags = {name: _plain(value.strip()) for name, value in _FLAG.findall(line) if name in _KEPT_FLAGS}
    named = len(program) == 2 and re.fullmatch(r"[a-z][a-z-]{0,19}", program[1])
    return f"warp {program[1]}" if named else "", flags
