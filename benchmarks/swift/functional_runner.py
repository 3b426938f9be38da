"""Runs modules of Swift's own functional tests; a JSON line for each test: its id, its outcome and why.

    functional_runner.py FILE MODULE…       with Swift's source tree and its packages importable, by the system's Python

Outcomes are pass, fail, error and skip. A module or class that cannot be set up is one error under its own name.
"""

import importlib
import json
import sys
import unittest
import unittest.mock
from pathlib import Path
from types import TracebackType

_Failure = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]


class Lines(unittest.TestResult):
    """Writes each outcome as it comes."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._write(test, "pass")

    def addFailure(self, test: unittest.TestCase, err: _Failure) -> None:
        self._write(test, "fail", err)

    def addError(self, test: unittest.TestCase, err: _Failure) -> None:
        self._write(test, "error", err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._write(test, "skip")

    def _write(self, test: unittest.TestCase, outcome: str, err: _Failure | None = None) -> None:
        why = f"{type(err[1]).__name__}: {err[1]}" if err else ""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"test": test.id(), "outcome": outcome, "why": why}) + "\n")


def main(path: str, *modules: str) -> None:
    """Run them in order."""
    sys.modules["mock"] = unittest.mock  # what the tests import by its older name
    functional = importlib.import_module("test.functional")
    functional.setup_package()
    for module in modules:
        unittest.defaultTestLoader.loadTestsFromName(module).run(Lines(Path(path)))
    functional.teardown_package()


if __name__ == "__main__":
    main(*sys.argv[1:])
