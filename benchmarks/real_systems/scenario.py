"""What a scenario is, and the register of all of them.

A scenario is a class in a module of `benchmarks.real_systems.systems`, decorated with `@scenario`: its hosts, the
programs it needs, `start` (programs up), `traffic` (what happens while it is captured, and the truth of it), and, where
the common statements do not cover it, `judge`.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from benchmarks.real_systems.capturing import BOTH, capturing
from benchmarks.real_systems.interpreter import VARIABLE, python_with
from benchmarks.real_systems.lab import SYSTEM_PATH, Lab
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.truth import Truth
from benchmarks.real_systems.verdict import Verdict

EVERYWHERE = (("tcpdump", "tcpdump"), ("nsenter", "util-linux"), ("setpriv", "util-linux"), ("ip", "iproute2"))
"""Programs that all scenarios need."""
MODULE = "python:"
"""Before the name of a module among the needs."""
BUILD = "build: "
"""Before the words for a program that is no package, among the needs: what is to be built, and with what."""
REGISTER: dict[str, "Scenario"] = {}
"""Name to scenario, in the table's order."""


class Scenario:
    """One system, its traffic, and what is injected."""

    name: ClassVar[str]
    words: ClassVar[str]
    """The system in a few words, for the table."""
    hosts: ClassVar[Mapping[str, str]]
    """Name to addresses (10.68.N.x, blanks between)."""
    captured: ClassVar[tuple[str, ...]] = ()
    """On which hosts; all, if none is named."""
    by: ClassVar[tuple[str, ...]] = BOTH
    needs: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Programs, each with Debian's package that has it; a module of PyPI's is `("python:MODULE", PACKAGE)`, a program
    that is no package `(PROGRAM, "build: WORDS")`."""

    @contextmanager
    def lab(self, folder: Path) -> Iterator[Lab]:
        """The hosts, up."""
        with Lab(folder, self.hosts) as lab:
            yield lab

    def start(self, lab: Lab) -> None:
        """Bring the programs up; before the captures begin."""

    def traffic(self, lab: Lab) -> Truth:
        """What is captured, and what is true of it."""
        raise NotImplementedError

    def capturing(self, lab: Lab, folder: Path) -> AbstractContextManager[None]:
        """The captures around `traffic`."""
        return capturing(lab, self.captured or self.hosts, folder, self.by)

    def captures(self, folder: Path, by: str) -> list[str]:
        """What `tracer replay` is given."""
        if by == "tcpdump":
            return [str(file) for file in sorted((folder / by).glob("*.pcap"))]
        return [str(folder / by)]

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        """Statements beyond the common ones."""
        return []


def scenario(kind: type[Scenario]) -> type[Scenario]:
    """Enter a scenario into the register."""
    assert kind.name not in REGISTER, kind.name
    REGISTER[kind.name] = kind()
    return kind


def addresses(**hosts: str) -> Mapping[str, str]:
    """Hosts with their addresses."""
    return MappingProxyType(hosts)


def missing(wanted: Scenario) -> str:
    """Why a scenario cannot run on this machine; "" if it can."""
    needs = {**dict(EVERYWHERE), **dict(wanted.needs)}
    lacking = {name: package for name, package in needs.items() if _find(name) is None}
    if not lacking:
        return ""
    how = []
    built = {package.removeprefix(BUILD) for package in lacking.values() if package.startswith(BUILD)}
    pypi = {package for name, package in lacking.items() if name.startswith(MODULE)}
    debian = {package for package in lacking.values() if not package.startswith(BUILD)} - pypi
    how += [f"apt-get install {' '.join(sorted(debian))}"] if debian else []
    how += [f"pip install {' '.join(sorted(pypi))}, or {VARIABLE}=an interpreter that has it"] if pypi else []
    how += [f"build {words}, into a folder of PATH" for words in sorted(built)]
    return f"not installed: {', '.join(lacking)} ({'; '.join(how)})"


def _find(program: str) -> str | None:
    if program.startswith(MODULE):
        return python_with(program.removeprefix(MODULE)) or None
    if "/" in program:
        return next((str(path) for path in Path("/").glob(program.lstrip("/"))), None)
    return shutil.which(program) or shutil.which(program, path=SYSTEM_PATH)
