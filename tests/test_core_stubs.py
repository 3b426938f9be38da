"""`tracer/_capture.pyi` and `collector/_core.pyi` list what the compiled modules have: names, arguments, results.

Results that are columns have a class of the stub. They are held against what the calls return while a bundled capture
is analysed.
"""

import ast
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from collector import _core
from collector.commands.replay import command as replay
from collector.decode import host_capture
from tracer import _capture

ROOT = Path(__file__).resolve().parent.parent
CAPTURES = ROOT / "captures" / "bench-2-puts"
STUBS = {
    module: ast.parse((ROOT / f"{module.__name__.replace('.', '/')}.pyi").read_text()) for module in (_capture, _core)
}
FUNCTIONS = [
    (module, node) for module, stub in STUBS.items() for node in stub.body if isinstance(node, ast.FunctionDef)
]
CLASSES = [
    (module, node)
    for module, stub in STUBS.items()
    for node in stub.body
    if isinstance(node, ast.ClassDef) and not node.bases
]
RESULTS = {node.name: node for node in STUBS[_core].body if isinstance(node, ast.ClassDef) and node.bases}
"""Classes of results, which only the stub has: typed dicts."""


def arguments(node: ast.FunctionDef) -> list[str]:
    """Names of a stub's arguments without `self` and `cls`."""
    names = [argument.arg for argument in node.args.posonlyargs + node.args.args + node.args.kwonlyargs]
    return [name for name in names if name not in ("self", "cls")]


def parameters(thing: object) -> list[str]:
    """Names of a compiled function's arguments without `self`."""
    return [name for name in inspect.signature(thing).parameters if name != "self"]  # type: ignore[arg-type]


def public(thing: object) -> set[str]:
    return {name for name in vars(thing) if not name.startswith("_")}


def label(value: object) -> str:
    return value.name if isinstance(value, ast.FunctionDef | ast.ClassDef) else getattr(value, "__name__", str(value))


@pytest.mark.parametrize("module", STUBS, ids=label)
def test_the_module_has_the_names_of_the_stub(module: ModuleType) -> None:
    listed = {node.name for _, node in (*FUNCTIONS, *CLASSES) if node in STUBS[module].body}
    assert public(module) == listed


@pytest.mark.parametrize(("module", "node"), FUNCTIONS, ids=label)
def test_functions_take_the_arguments_of_the_stub(module: ModuleType, node: ast.FunctionDef) -> None:
    assert parameters(getattr(module, node.name)) == arguments(node)


@pytest.mark.parametrize(("module", "node"), CLASSES, ids=label)
def test_classes_have_the_members_of_the_stub(module: ModuleType, node: ast.ClassDef) -> None:
    compiled = getattr(module, node.name)
    members = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
    constructor = members.pop("__new__", members.pop("__init__", None))
    if constructor is not None:
        assert parameters(compiled) == arguments(constructor)
    assert public(compiled) == {member for member in members if not member.startswith("_")}
    for member, method in members.items():
        if callable(getattr(compiled, member)):
            assert parameters(getattr(compiled, member)) == arguments(method), member


@pytest.mark.parametrize("module", STUBS, ids=label)
def test_everything_in_the_module_is_documented(module: ModuleType) -> None:
    assert [name for name in public(module) if not inspect.getdoc(getattr(module, name))] == []


def columns_of(result: str) -> dict[str, ast.expr]:
    """The columns of a class of results, with those that it inherits."""
    node = RESULTS[result]
    (base,) = (each.id for each in node.bases if isinstance(each, ast.Name))
    own = {
        each.target.id: each.annotation
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    return (columns_of(base) if base in RESULTS else {}) | own


def mismatches(annotation: ast.expr, value: Any, where: str) -> Iterator[str]:
    """Where a value is not what an annotation says, as far as that is about columns."""
    match annotation:
        case ast.BinOp(left=left, op=ast.BitOr()):  # `… | None`
            yield from () if value is None else mismatches(left, value, where)
        case ast.Name(id=name) if name in RESULTS:
            columns = columns_of(name)
            if value.keys() != columns.keys():
                yield f"{where}: {sorted(value.keys() ^ columns.keys())}"
            for column in value.keys() & columns.keys():
                yield from mismatches(columns[column], value[column], f"{where}.{column}")
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=parts)):
            for place, (part, each) in enumerate(zip(parts, value, strict=True)):
                yield from mismatches(part, each, f"{where}[{place}]")
        case ast.Subscript(value=ast.Name(id="NDArray"), slice=dtype):
            if value.dtype != np.dtype(getattr(np, ast.unparse(dtype).removeprefix("np."))):
                yield f"{where}: {value.dtype}"


def calls_with_columns() -> dict[str, ast.expr]:
    """What returns columns, `NAME` or `CLASS.NAME`, and the annotation of its result."""
    calls = {node.name: node for _, node in FUNCTIONS}
    calls |= {
        f"{node.name}.{each.name}": each
        for _, node in CLASSES
        for each in node.body
        if isinstance(each, ast.FunctionDef)
    }
    found = {name: node.returns for name, node in calls.items() if node.returns is not None}
    return {
        name: returns
        for name, returns in found.items()
        if any(isinstance(part, ast.Name) and part.id in RESULTS for part in ast.walk(returns))
    }


class Recorded:
    """The core's `Partitions`, whose results are kept."""

    def __init__(self, partitions: _core.Partitions, keep: Callable[[str, Any], Any]) -> None:
        self._partitions, self._keep = partitions, keep

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._partitions, name)
        return lambda *arguments: self._keep(f"Partitions.{name}", method(*arguments))


def analyse(trace: Path) -> None:
    done = CliRunner().invoke(replay, ["-o", str(trace), str(CAPTURES)])
    assert done.exit_code == 0, done.output


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """By call, what it returned while a bundled capture was analysed: with its ids, and as if it showed none."""
    kept: dict[str, list[Any]] = defaultdict(list)

    def keep(name: str, value: Any) -> Any:
        kept[name].append(value)
        return value

    def recorder(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: keep(name, function(*arguments))

    partitions = _core.Partitions
    with pytest.MonkeyPatch.context() as patch:
        for name in calls_with_columns():
            if "." not in name:
                patch.setattr(_core, name, recorder(name, getattr(_core, name)))
        patch.setattr(_core, "Partitions", lambda *arguments: Recorded(partitions(*arguments), keep))
        analyse(tmp_path_factory.mktemp("ids") / "trace")
        patch.setattr(host_capture, "id_headers", lambda: ())
        analyse(tmp_path_factory.mktemp("no-ids") / "trace")
    for file in CAPTURES.glob("*.pcap*"):
        keep("CaptureFile.next_batch", _core.CaptureFile(file).next_batch(1000))
    return kept


@pytest.mark.parametrize("name", calls_with_columns())
def test_results_have_the_columns_of_the_stub(name: str, results: dict[str, list[Any]]) -> None:
    assert name in results, "nothing calls it any more, or only on another capture"
    found = [line for value in results[name] for line in mismatches(calls_with_columns()[name], value, name)]
    assert found == []
