"""Swift's own functional tests, on Debian's Swift and on the bundled cluster: `python -m benchmarks.swift functional`.

The tests are not part of this project and nothing is fetched: who runs it gives the path of an unpacked source tree of
Swift 2.30.1 (`pip download swift==2.30.1 --no-binary :all: --no-deps`). Both stores have to be up, with storage
policies, and Swift on a file system that keeps as much metadata as Swift allows (xfs; ext4 does not) and is large (100
GiB, or a sparse image of that size), since tests announce objects of 5 GiB:

    export TWINTAP_SWIFT_TOPOLOGY=policies TWINTAP_SWIFT_DIR=/mnt/xfs/swift
    python -m benchmarks.swift up
    tracer cluster up --topology policies

The counts are kept in a file, from which `benchmarks.swift.compat` writes its table. The S3 tests are left out:
they are no part of the Swift API.
"""

import csv
import dataclasses
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from benchmarks.swift import hosts
from storage_cluster.hosts import cluster

MODULES = (
    *("test_account", "test_container", "test_object", "tests", "test_access_control"),
    *("test_dlo", "test_slo", "test_symlink", "test_versioned_writes", "test_object_versioning"),
    *("test_staticweb", "test_tempurl", "test_domain_remap"),
)
FILE = Path(__file__).resolve().parents[2] / "tests" / "golden" / "swift-functional.csv"
_RUNNER = Path(__file__).with_name("functional_runner.py")
_PYTHON = "/usr/bin/python3"
_CONFIGURATION = """\
[func_test]
auth_uri = {auth_url}
account = test
username = tester
password = testing
account2 = test2
username2 = tester2
password2 = testing2
username3 = tester3
password3 = testing3
account5 = test5
username5 = tester5
password5 = testing5
account6 = admin
username6 = admin
password6 = admin
collate = C
insecure = no
[unit_test]
fake_syslog = False
"""

Outcomes = dict[str, str]
"""Test to outcome."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One module's counts. A test counts as run if real Swift does not skip it."""

    module: str
    skipped_count: int
    run_count: int
    swift_count: int
    ours_count: int


@dataclasses.dataclass(frozen=True)
class Store:
    """Where the tests run: a command's prefix on the client host, and where a token is to be had."""

    enter: Sequence[str]
    auth_url: str

    @classmethod
    def swift(cls) -> "Store":
        """Debian's. Raises: click.UsageError if it is not up."""
        return cls(hosts.load().enter("client"), hosts.environment()["ST_AUTH"])

    @classmethod
    def ours(cls, state_dir: Path) -> "Store":
        """The bundled cluster. Raises: InputError if it is not up."""
        running = cluster.status(state_dir)
        return cls(running.host(running.client_host).enter, running.environment["ST_AUTH"])

    def outcomes(self, source: Path, module: str) -> Outcomes:
        """Run a module's tests. Raises: subprocess.CalledProcessError if they were ended before they were done."""
        with tempfile.TemporaryDirectory() as directory:
            configuration, lines = Path(directory, "test.conf"), Path(directory, "outcomes.jsonl")
            configuration.write_text(_CONFIGURATION.format(auth_url=self.auth_url), "utf-8")
            lines.touch()
            argv = [*self.enter, _PYTHON, str(_RUNNER), str(lines), f"test.functional.{module}"]
            given = {"SWIFT_TEST_CONFIG_FILE": str(configuration), "PYTHONPATH": str(source)}
            subprocess.run(argv, env=os.environ | given, check=True)
            return outcomes_in(lines.read_text("utf-8").splitlines())


def outcomes_in(lines: Iterable[str]) -> Outcomes:
    """What the runner wrote."""
    return {found["test"]: found["outcome"] for found in map(json.loads, lines)}


def row(module: str, swift: Outcomes, ours: Outcomes) -> Row:
    """The counts of one module."""
    run = [test for test, outcome in swift.items() if outcome != "skip"]
    swift_count, ours_count = (sum(outcomes.get(test) == "pass" for test in run) for outcomes in (swift, ours))
    return Row(module, len(swift) - len(run), len(run), swift_count, ours_count)


def run(source: Path, state_dir: Path, only: Sequence[str]) -> None:
    """Run modules on both, and keep the counts of those. Raises: click.UsageError."""
    if not (source / "test" / "functional").is_dir():
        raise click.UsageError(f"{source} is no source tree of Swift: it has no test/functional")
    rows = {known.module: known for known in load()} if FILE.exists() else {}
    swift, ours = Store.swift(), Store.ours(state_dir)
    for module in only or MODULES:
        there, here = swift.outcomes(source, module), ours.outcomes(source, module)
        rows[module] = row(module, there, here)
        for test, outcome in there.items():
            if outcome != "skip" and not outcome == here.get(test) == "pass":
                click.echo(f"{test}: {outcome} on Swift, {here.get(test)} here")
        save(rows.values())


def save(rows: Iterable[Row]) -> None:
    """Keep the counts."""
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in dataclasses.fields(Row)])
        writer.writerows(dataclasses.astuple(each) for each in sorted(rows, key=lambda each: each.module))


def load() -> list[Row]:
    """The counts that are kept."""
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = [field.name for field in dataclasses.fields(Row)[1:]]
    return [Row(each["module"], *(int(each[name]) for name in names)) for each in rows]


def table(rows: Sequence[Row]) -> Iterator[str]:
    """A table of them, with their sums."""
    yield from ("| module | skipped | tests run | pass on Swift 2.30.1 | pass here |", "|---|---:|---:|---:|---:|")
    counts = [dataclasses.astuple(each)[1:] for each in rows]
    sums = Row("all", *(sum(column) for column in zip(*counts, strict=True)))
    for each in (*rows, sums):
        yield "| " + " | ".join(map(str, dataclasses.astuple(each))) + " |"
    if missing := [module for module in MODULES if module not in {each.module for each in rows}]:
        yield f"\nNot measured on both yet: {', '.join(missing)}."
