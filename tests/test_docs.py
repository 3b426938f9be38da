"""What the documents say is so: links lead somewhere, commands and options exist, targets are listed."""

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest

from tests.conftest import SLOW

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
SHELL_BLOCK = re.compile(r"^```(?:sh|console|bash)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def _targets() -> set[str]:
    """Every target of the Makefile that is meant to be typed."""
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony
    return set(phony[1].split()) - {"again"}


def _shell_lines(page: Path) -> Iterator[list[str]]:
    """Words of each command in a page's shell blocks; in a block with prompts, only what follows one is a command."""
    for block in SHELL_BLOCK.findall(page.read_text()):
        lines = block.replace("\\\n", " ").splitlines()
        if any(line.startswith("$ ") for line in lines):
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        for line in lines:
            for part in re.split(r"&&|\|\||[|;]", line.split("  #")[0]):
                words = [word for word in shlex.split(part, comments=True) if word]
                if words:
                    yield words[1:] if words[0] == "sudo" else words


def _check_tracer(words: list[str]) -> None:
    """Follow subcommands, then see that each option before `--` is one of the command's."""
    name, *rest = words
    points = [point for point in entry_points(group="tracer.commands") if point.name == name]
    assert points, f"no command `tracer {name}`"
    command: click.Command = points[0].load()
    while isinstance(command, click.Group) and rest and rest[0] in command.commands:
        command = command.commands[rest.pop(0)]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in rest[: rest.index("--")] if "--" in rest else rest:
        if word.startswith("-") and word != "-":
            assert word.split("=")[0] in {*known, "--help", "-h"}, f"`tracer {name}` has no option {word}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page: Path) -> None:
    targets = [link.split("#")[0] for link in LINK.findall(page.read_text()) if not re.match(r"[a-z]+:", link)]
    assert [link for link in targets if link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_shell_blocks_exist(page: Path) -> None:
    for words in _shell_lines(page):
        if words[0] == "make":
            goals = {word for word in words[1:] if "=" not in word}
            assert goals <= _targets(), f"{shlex.join(words)}: no such target"
        elif words[0] == "tracer" and len(words) > 1 and not words[1].startswith("-"):
            _check_tracer(words[1:])
        elif "/" in words[0] and not words[0].startswith(("/", "~", "$")):
            assert (ROOT / words[0]).exists() or words[0].startswith(".venv/"), f"{words[0]}: no such file"


def test_commands_page_says_what_the_commands_say(regenerate: bool) -> None:
    page = ROOT / "docs" / "commands.md"
    argv = [sys.executable, "-m", "tests.helpers.commands_page"]
    printed = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    if regenerate:
        page.write_text(printed)
    same = page.read_text() == printed
    assert same, "a command changed: make test-python PYTEST_ARGS='tests/test_docs.py --regenerate', and read the diff"


def test_every_counter_that_the_collector_adds_is_documented() -> None:
    """Those of the core are held against the table by tests of `collector.capture_files`."""
    pages = "".join(page.read_text() for page in PAGES)
    names = {name for path in (ROOT / "collector").rglob("*.py") for name in _counter_names(path)}
    assert "direction_unknown" in names
    assert {name for name in names if f"`{name}`" not in pages} == set()


def _counter_names(path: Path) -> Iterator[str]:
    """Second arguments of `CounterInfo(host, name, …)` that are written out."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "CounterInfo":
            yield from (part.value for part in node.args[1:2] if isinstance(part, ast.Constant))


def test_modules_that_a_quick_run_leaves_out_exist() -> None:
    assert [module for module in SLOW if not (ROOT / module).is_file()] == []
    assert len(set(SLOW)) == len(SLOW)


def test_every_make_target_is_in_help() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, text=True, capture_output=True, check=True
    )
    listed = {line.split()[0]: line.split(maxsplit=1)[1] for line in shown.stdout.splitlines() if line.startswith("  ")}
    assert listed.keys() == _targets()


def test_every_constraint_is_an_exact_version() -> None:
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.!+]+", pin)] == []


def test_build_requirements_are_pinned_alike() -> None:
    required = re.search(r"^requires = \[(.*)\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert required
    pinned = (ROOT / "constraints.txt").read_text().splitlines()
    assert set(re.findall(r'"([^"]+)"', required[1])) <= set(pinned)
