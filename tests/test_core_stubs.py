"""`tracer/_capture.pyi` and `collector/_core.pyi` list what the compiled modules have: the same names and arguments."""

import ast
import inspect
from pathlib import Path
from types import ModuleType

import pytest

from collector import _core
from tracer import _capture

ROOT = Path(__file__).resolve().parent.parent
STUBS = {
    module: ast.parse((ROOT / f"{module.__name__.replace('.', '/')}.pyi").read_text()) for module in (_capture, _core)
}
FUNCTIONS = [
    (module, node) for module, stub in STUBS.items() for node in stub.body if isinstance(node, ast.FunctionDef)
]
CLASSES = [(module, node) for module, stub in STUBS.items() for node in stub.body if isinstance(node, ast.ClassDef)]


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
    listed = {node.name for node in STUBS[module].body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
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
