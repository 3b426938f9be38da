"""`tracer/_core.pyi` lists what the compiled module has: the same names, the same arguments."""

import ast
import inspect
from pathlib import Path

import pytest

import tracer
from tracer import _core

STUB = ast.parse((Path(tracer.__file__).parent / "_core.pyi").read_text())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}


def arguments(node: ast.FunctionDef) -> list[str]:
    """Names of a stub's arguments without `self` and `cls`."""
    names = [argument.arg for argument in node.args.posonlyargs + node.args.args + node.args.kwonlyargs]
    return [name for name in names if name not in ("self", "cls")]


def parameters(thing: object) -> list[str]:
    """Names of a compiled function's arguments without `self`."""
    return [name for name in inspect.signature(thing).parameters if name != "self"]  # type: ignore[arg-type]


def public(thing: object) -> set[str]:
    return {name for name in vars(thing) if not name.startswith("_")}


def test_the_module_has_the_names_of_the_stub():
    assert public(_core) == CLASSES.keys() | FUNCTIONS.keys() | _constants()


def _constants() -> set[str]:
    return {
        node.target.id for node in STUB.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_the_arguments_of_the_stub(name):
    assert parameters(getattr(_core, name)) == arguments(FUNCTIONS[name])


@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_the_members_of_the_stub(name):
    compiled = getattr(_core, name)
    members = {node.name: node for node in CLASSES[name].body if isinstance(node, ast.FunctionDef)}
    constructor = members.pop("__new__", members.pop("__init__", None))
    if constructor is not None:
        assert parameters(compiled) == arguments(constructor)
    fields = {node.target.id for node in CLASSES[name].body if isinstance(node, ast.AnnAssign)}  # type: ignore[union-attr]
    assert public(compiled) == {member for member in members if not member.startswith("_")} | fields
    for member, node in members.items():
        if callable(getattr(compiled, member)):
            assert parameters(getattr(compiled, member)) == arguments(node), member
