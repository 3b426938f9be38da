"""Requests at their own times, as JSON lines: what was asked of a store once, to be asked of another at the same times.

    {"format": "twintap-requests", "version": 1, "name": "shop", "left_out": {"logins": 2}}
    {"t_ns": 0, "kind": "write", "container": "c3f0…", "object": "9b1e…", "size_bytes": 65536, "status": 201}
    {"t_ns": 5120000, "kind": "read", "container": "c3f0…", "object": "9b1e…", "size_bytes": 65536, "status": 200}

`t_ns` is when a request began, since the first one. `kind`: read, write, head, delete, list, init (make a container),
dispose (delete one). Without `object` head is a container's. `size_bytes` is of the object. `status` is what was
answered; 0: nothing. `left_out`: what could not be written, counted by reason. `tracer bench from TRACE` writes such
files; names in them are keyed hashes.

Stages come of it: `containers` makes those that were there, `prepare` what is read, asked for or deleted before
anything is written under its name, as large as the largest such read; what was not there (404) is not prepared.
`replay` is an open loop: each request begins when it is due, divided by the work's `speed`.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.model import Kind, Operation, Planned, Stage, Work, Workload

FORMAT = "twintap-requests"
VERSION = 1
WORKERS = 512
"""Requests under way at once; one that is due when all are is late, which is reported."""
PREPARE_WORKERS = 8
_KINDS = (Kind.READ, Kind.WRITE, Kind.HEAD, Kind.DELETE, Kind.LIST, Kind.INIT, Kind.DISPOSE)
_USES = (Kind.READ, Kind.HEAD, Kind.DELETE)
_MEND = "give a file that `tracer bench from TRACE` wrote"


def is_schedule(text: str) -> bool:
    """Whether a file's first line says that it is one."""
    return f'"{FORMAT}"' in text.partition("\n")[0]


def parse_schedule(text: str, file: str) -> Workload:
    """The workload in a file. Raises: WorkloadError with the line."""
    head, *lines = text.splitlines()
    about = _object(head, file, 1)
    if about.get("version") != VERSION:
        raise WorkloadError(f"{file}:1: version {about.get('version')!r} is not known, only {VERSION} is", _MEND)
    planned = tuple(
        _read_request(_object(line, file, at), file, at) for at, line in enumerate(lines, 2) if line.strip()
    )
    if not planned:
        raise WorkloadError(f"{file} holds no request", _MEND)
    planned = tuple(sorted(planned, key=lambda each: each.due_ns))
    stages = [*_prepare_stage(planned), _replay_stage(planned)]
    return Workload(str(about.get("name", file)), tuple(stages), source="trace", notices=tuple(_notices(about, file)))


def _prepare_stage(planned: Sequence[Planned]) -> Iterator[Stage]:
    containers = tuple(Planned(0, Kind.INIT, name) for name in _needed_containers(planned))
    objects = tuple(_needed_objects(planned))
    if containers:
        yield Stage("containers", (_scan("containers", Kind.INIT, containers),))
    if objects:
        yield Stage("prepare", (_scan("prepare", Kind.PREPARE, objects),))


def _scan(name: str, kind: Kind, planned: tuple[Planned, ...]) -> Work:
    operation = Operation(kind, planned=planned)
    return Work(name, kind, (operation,), workers=min(PREPARE_WORKERS, len(planned)), acceptable_failures_ppm=0)


def _replay_stage(planned: tuple[Planned, ...]) -> Stage:
    kinds = dict.fromkeys(each.kind for each in planned)
    operations = tuple(Operation(kind) for kind in kinds)
    work = Work("replay", None, operations, workers=WORKERS, acceptable_failures_ppm=1_000_000, schedule=planned)
    return Stage("replay", (work,))


def _needed_containers(planned: Sequence[Planned]) -> list[str]:
    """Containers that requests are about before one makes them; of those that were there."""
    made: set[str] = set()
    needed: dict[str, None] = {}
    for each in planned:
        if each.kind is Kind.INIT:
            made.add(each.container)
        elif each.container not in made and each.status != 404:
            needed[each.container] = None
    return list(needed)


def _needed_objects(planned: Sequence[Planned]) -> Iterator[Planned]:
    """Objects that are used before they are written, each as large as the largest read of it until then."""
    written: set[tuple[str, str]] = set()
    needed: dict[tuple[str, str], int] = {}
    for each in planned:
        name = each.container, each.object
        if each.kind is Kind.WRITE:
            written.add(name)
        elif each.kind in _USES and each.object and name not in written and each.status != 404:
            needed[name] = max(needed.get(name, 0), each.size_bytes)
    return (Planned(0, Kind.PREPARE, *name, size) for name, size in needed.items())


def _notices(about: dict[str, Any], file: str) -> Iterator[str]:
    left_out = about.get("left_out", {})
    if left_out:
        counts = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
        yield f"{file}: of the trace not played: {counts}"
    if about.get("estimated"):
        yield f"{file}: {about['estimated']:,} sizes are estimates: the capture cut the heads that say them"


def _read_request(found: dict[str, Any], file: str, line: int) -> Planned:
    try:
        kind = Kind(found["kind"])
        made = Planned(
            int(found["t_ns"]), kind, str(found["container"]), str(found.get("object", "")),
            int(found.get("size_bytes", 0)), int(found.get("status", 0)),
        )  # fmt: skip
    except (KeyError, ValueError, TypeError) as error:
        raise WorkloadError(f"{file}:{line}: not a request ({error})", _MEND) from None
    if kind not in _KINDS or made.due_ns < 0 or made.size_bytes < 0 or not made.container:
        raise WorkloadError(f"{file}:{line}: such a request cannot be played ({kind})", _MEND)
    return made


def _object(text: str, file: str, line: int) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise WorkloadError(f"{file}:{line}: not JSON ({error})", _MEND) from None
    if not isinstance(found, dict):
        raise WorkloadError(f"{file}:{line}: not a JSON object", _MEND)
    return found
