"""COSBench's workload XML, as its users have it.

What is read: everything that its schema has for Swift and S3. What is refused, with the line: unknown elements,
attributes and config keys; operations that have no meaning here (`filewrite`, `mprepare`, …); triggers. Where COSBench
is vague, this holds: ratios of a work add up to 100; a work needs a limit (runtime, totalOps or totalBytes); `division`
defaults to what COSBench sets for each kind of work; `afr`, failures per million that are acceptable, to 200,000 for a
mix and 0 otherwise.

Source: COSBench User Guide 2.8.6 and its `cosbench-config` (defaults, what is mandatory); Apache-2.0, nothing copied.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from storage_cluster.bench.formats.options import Options, boolean, convert, one_of, parse_options
from storage_cluster.bench.formats.xml import Element, parse
from storage_cluster.bench.model import (
    CONTAINERS,
    DIVISIONS,
    OBJECTS,
    AuthConfig,
    Division,
    Kind,
    Names,
    Operation,
    Stage,
    StorageConfig,
    Work,
    Workload,
)
from storage_cluster.bench.selectors import parse_selector, parse_sizes
from storage_cluster.bench.storage import s3_options
from storage_cluster.bench.storage.opening import AUTH_KINDS

_S3_KINDS = ("s3", "s3v4")
_STORAGE_KEYS = ("timeout", "token", "storage_url", "policy")
_AUTH_KEYS = ("username", "password", "auth_url", "url", "timeout", "caching")
_OBJECT_KEYS = ("containers", "cprefix", "csuffix", "objects", "oprefix", "osuffix")
_CONTAINER_KEYS = _OBJECT_KEYS[:3]
_CONTENT_KEYS = ("sizes", "chunked", "content", "hashCheck")
_KEYS: dict[Kind, tuple[str, ...]] = {
    Kind.INIT: _CONTAINER_KEYS,
    Kind.DISPOSE: _CONTAINER_KEYS,
    Kind.PREPARE: (*_OBJECT_KEYS, *_CONTENT_KEYS, "createContainer"),
    Kind.CLEANUP: (*_OBJECT_KEYS, "deleteContainer"),
    Kind.WRITE: (*_OBJECT_KEYS, *_CONTENT_KEYS),
    Kind.READ: (*_OBJECT_KEYS, "hashCheck"),
    Kind.DELETE: _OBJECT_KEYS,
    Kind.LIST: _OBJECT_KEYS,
    Kind.DELAY: (),
}
_ALL_KEYS = tuple(dict.fromkeys(key for keys in _KEYS.values() for key in keys))
_MIXED = (Kind.READ, Kind.WRITE, Kind.DELETE, Kind.LIST)
_ELSEWHERE = ("filewrite", "mfilewrite", "mwrite", "mprepare", "restore", "localwrite", "head")
_WORK_ATTRIBUTES = (
    "name", "type", "workers", "interval", "division", "runtime", "rampup", "rampdown", "afr", "totalOps",
    "totalBytes", "driver", "config",
)  # fmt: skip


_LIMIT_ATTRIBUTES = ("runtime", "totalOps", "totalBytes", "rampup", "rampdown")
_Part = TypeVar("_Part", Stage, Work)


@dataclasses.dataclass(frozen=True)
class _Context:
    """What holds from the levels above."""

    storage: StorageConfig
    auth: AuthConfig
    options: Mapping[str, str]
    notices: list[str] = dataclasses.field(default_factory=list)


def parse_cosbench(text: bytes, file: str) -> Workload:
    """The workload in a COSBench file. Raises: WorkloadError."""
    root = parse(text, file)
    if root.tag != "workload":
        root.fail("the root of a COSBench file is <workload>")
    root.allow(("name", "description", "config", "trigger"), ("storage", "auth", "workflow"))
    _no_trigger(root)
    context = _context(root, _Context(StorageConfig(where=f"{file}: "), AuthConfig(where=f"{file}: "), {}))
    workflow = root.one("workflow")
    if workflow is None:
        root.fail("<workflow> is missing")
    workflow.allow(("config",), ("workstage",))
    context = dataclasses.replace(context, options=parse_options(workflow, _ALL_KEYS, context.options))
    stages = [_stage(element, context) for element in workflow.all("workstage")]
    if not stages:
        workflow.fail("there is no <workstage>")
    notices = tuple(dict.fromkeys(context.notices))
    return Workload(_name(root), _distinct(stages), root.get("description").strip(), "cosbench", notices)


def _stage(element: Element, above: _Context) -> Stage:
    element.allow(("name", "closuredelay", "config", "trigger"), ("work", "storage", "auth"))
    _no_trigger(element)
    context = _context(element, above)
    works = [_work(work, context) for work in element.all("work")]
    if not works:
        element.fail("there is no <work>")
    return Stage(_name(element), _distinct(works), _number(element, "closuredelay", 0))


def _work(element: Element, above: _Context) -> Work:
    element.allow(_WORK_ATTRIBUTES, ("operation", "storage", "auth"))
    kind = _work_kind(element)
    context = _context(element, above, tuple(_KEYS[kind]) if kind else _ALL_KEYS)
    work = Work(
        name=element.get("name") or (str(kind) if kind else element.fail("attribute name is missing")),
        kind=kind,
        operations=(_operation_of(element, kind, context),) if kind else _operations(element, context),
        workers=1 if kind is Kind.DELAY else _workers(element),
        interval_s=_number(element, "interval", 5, least=1),
        driver=element.get("driver"),
        acceptable_failures_ppm=_number(element, "afr", 0 if kind else 200_000, most=1_000_000),
        storage=context.storage,
        auth=context.auth,
    )
    if kind is None:
        return _with_limits(element, work)
    context.notices.extend(
        f"{element.where(name)} has no effect: a work of type {kind} ends by itself"
        for name in _LIMIT_ATTRIBUTES
        if element.get(name)
    )
    return work


def _with_limits(element: Element, work: Work) -> Work:
    work = dataclasses.replace(
        work,
        runtime_s=_number(element, "runtime", 0),
        total_ops=_number(element, "totalOps", 0),
        total_bytes=_number(element, "totalBytes", 0),
        rampup_s=_number(element, "rampup", 0),
        rampdown_s=_number(element, "rampdown", 0),
    )
    if not (work.runtime_s or work.total_ops or work.total_bytes):
        element.fail("it has no limit; give runtime, totalOps or totalBytes")
    return work


def _work_kind(element: Element) -> Kind | None:
    """None: a mix of operations."""
    text = element.get("type", "normal")
    kinds = (*DIVISIONS, Kind.DELAY)
    if text in ("normal", "main", ""):
        return None
    if text not in kinds:
        hint = " (files and several parts are not supported)" if text in _ELSEWHERE else ""
        element.fail(f"{text!r} is none of {', '.join(kinds)}, normal{hint}", "type")
    return Kind(text)


def _operations(element: Element, context: _Context) -> tuple[Operation, ...]:
    found = [_operation(child, element, context) for child in element.all("operation")]
    if not found:
        element.fail("there is no <operation>")
    if sum(operation.ratio for operation in found) != 100:
        element.fail("the ratios of its operations do not add up to 100")
    return tuple(operation for operation in found if operation.ratio)


def _operation(element: Element, work: Element, context: _Context) -> Operation:
    element.allow(("type", "ratio", "division", "config", "id"))
    text = element.get("type")
    if text not in _MIXED:
        hint = " (files and several parts are not supported)" if text in _ELSEWHERE else ""
        element.fail(f"{text!r} is none of {', '.join(_MIXED)}{hint}", "type")
    kind = Kind(text)
    options = parse_options(element, _KEYS[kind], context.options)
    made = _with_options(element, kind, options)
    division = element.get("division") or work.get("division") or "none"
    return dataclasses.replace(
        made,
        ratio=_number(element, "ratio", 100, most=100),
        division=_division(element if "division" in element.attributes else work, division),
        name=element.get("id") if element.get("id") not in ("", *(f"op{n}" for n in range(1, 100))) else "",
    )


def _operation_of(element: Element, kind: Kind, context: _Context) -> Operation:
    """The one operation of a work that has a kind."""
    for child in element.all("operation"):
        child.allow(("type", "ratio", "division", "config", "id"))
        if child.get("type") != kind:
            child.fail(f"a work of type {kind} has no other operation", "type")
    made = _with_options(element, kind, dict(context.options))
    division = element.get("division")
    return dataclasses.replace(
        made, division=_division(element, division) if division else DIVISIONS.get(kind, Division.NONE)
    )


def _with_options(element: Element, kind: Kind, options: Options) -> Operation:
    """An operation as its config describes it."""
    needed = {Kind.DELAY: ()}.get(
        kind, ("containers",) if kind in (Kind.INIT, Kind.DISPOSE, Kind.LIST) else ("containers", "objects")
    )
    for key in (*needed, *(("sizes",) if kind in (Kind.PREPARE, Kind.WRITE) else ())):
        if key not in options:
            element.fail(f"key {key} is missing", "config")
    containers = _names(element, options, "containers", "c", CONTAINERS)
    has_objects = "objects" in options
    operation = Operation(
        kind,
        containers=containers,
        objects=_names(element, options, "objects", "o", OBJECTS) if has_objects else None,
        sizes=convert(element, options, "sizes", parse_sizes, None) if "sizes" in options else None,
        hash_check=convert(element, options, "hashCheck", boolean, False),
        zeros=convert(element, options, "content", one_of("random", "zero"), "random") == "zero",
        chunked=convert(element, options, "chunked", boolean, False),
        make_container=convert(element, options, "createContainer", boolean, False),
        delete_container=convert(element, options, "deleteContainer", boolean, False),
    )
    if kind in DIVISIONS:
        _check_scan(element, operation)
    return operation


def _check_scan(element: Element, operation: Operation) -> None:
    for what, names in (("containers", operation.containers), ("objects", operation.objects)):
        if names is not None and names.selector.kind not in ("r", "s", "c"):
            element.fail(
                f"key {what}: {names.selector} is drawn by chance, and {operation.kind} goes over a range", "config"
            )


def _names(element: Element, options: Options, key: str, letter: str, default: Names) -> Names:
    return Names(
        convert(element, options, key, parse_selector, default.selector),
        options.get(f"{letter}prefix", default.prefix),
        options.get(f"{letter}suffix", ""),
    )


def _context(element: Element, above: _Context, keys: tuple[str, ...] = _ALL_KEYS) -> _Context:
    """What holds within an element."""
    made = _Context(
        _storage(element.one("storage"), above.storage),
        _auth(element.one("auth"), above.auth),
        parse_options(element, keys, above.options),
        above.notices,
    )
    given = element.one("storage") or element.one("auth")
    if given is not None:
        made.notices.extend(f"{given.where('config')}: {what}" for what in _idle(made.storage, made.auth))
    return made


def _idle(storage: StorageConfig, auth: AuthConfig) -> Iterator[str]:
    """Keys that have no effect, or none together."""
    if storage.kind == "s3":
        for key in filter(storage.option, s3_options.COSBENCH_IDLE):
            yield f"key {key} of <storage> has no effect here"
    if auth.kind in AUTH_KINDS and auth.kind != "none":
        for key in ("token", "storage_url"):
            if storage.option(key):
                yield f"key {key} of <storage> has no effect, since auth {auth.kind} gives its own"
    elif auth.kind == "none":
        for key in _AUTH_KEYS:
            if auth.option(key):
                yield f"key {key} of <auth> has no effect with auth none"


def _storage(element: Element | None, above: StorageConfig) -> StorageConfig:
    if element is None:
        return above
    element.allow(("type", "config"))
    kind = element.get("type")
    if kind in _S3_KINDS:
        return _s3(element)
    options = parse_options(element, _STORAGE_KEYS) if kind == "swift" else {}
    convert(element, options, "timeout", _positive, 0)
    return StorageConfig(kind, tuple(options.items()), element.where() + ": ")


def _s3(element: Element) -> StorageConfig:
    """COSBench's keys under our names; its default is that the bucket is in the host name where it can be."""
    options = parse_options(element, s3_options.COSBENCH_KEYS)
    convert(element, options, "timeout", _positive, 0)
    renamed = {s3_options.COSBENCH_NAMES.get(key, key): value for key, value in options.items()}
    return StorageConfig("s3", tuple(({"path_style": "false"} | renamed).items()), element.where() + ": ")


def _auth(element: Element | None, above: AuthConfig) -> AuthConfig:
    if element is None:
        return above
    element.allow(("type", "config"))
    kind = element.get("type")
    options = parse_options(element, _AUTH_KEYS) if kind in AUTH_KINDS else {}
    convert(element, options, "timeout", _positive, 0)
    cached = convert(element, options, "caching", boolean, True)
    return AuthConfig(kind, tuple(options.items()), element.where() + ": ", cached=cached)


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ValueError(f"{text!r} is no number above 0")
    return int(text)


def _division(element: Element, text: str) -> Division:
    if text not in tuple(Division):
        element.fail(f"{text!r} is none of {', '.join(Division)}", "division")
    return Division(text)


def _workers(element: Element) -> int:
    if "workers" not in element.attributes:
        element.fail("attribute workers is missing")
    return _number(element, "workers", 1, least=1)


def _number(element: Element, name: str, default: int, *, least: int = 0, most: int | None = None) -> int:
    text = element.get(name).strip()
    if not text:
        return default
    if not text.isdecimal() or int(text) < least or (most is not None and int(text) > most):
        limits = f"from {least:,} to {most:,}" if most is not None else f"of {least:,} or more"
        element.fail(f"{text!r} is no whole number {limits}", name)
    return int(text)


def _name(element: Element) -> str:
    return element.get("name") or element.fail("attribute name is missing")


def _no_trigger(element: Element) -> None:
    if element.get("trigger"):
        element.fail("triggers are not supported; run the script by yourself", "trigger")


def _distinct(parts: Iterable[_Part]) -> tuple[_Part, ...]:
    """The same with names that differ: the second `delay` is `delay-2`."""
    seen: dict[str, int] = {}
    made = []
    for part in parts:
        seen[part.name] = seen.get(part.name, 0) + 1
        count = seen[part.name]
        made.append(dataclasses.replace(part, name=f"{part.name}-{count}") if count > 1 else part)
    return tuple(made)
