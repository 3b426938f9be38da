"""The walls between the packages, read from the sources: an import against the flow of data fails."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CRATES = tuple(
    manifest.parent
    for core in ("tracer", "collector")
    for manifest in sorted((ROOT / core / "core").glob("*/Cargo.toml"))
)

MAY_IMPORT = {
    "tracer": (),
    "collector": ("tracer",),
    "viewer": (
        "collector.queries",
        "tracer.commands.log_options",
        "tracer.errors",
        "tracer.interrupts",
        "tracer.scratch",
        "tracer.secret_rules",
        "tracer.service_log",
        "tracer.tls",
        "tracer.tokens",
    ),
    "storage_cluster": (
        "tracer.errors",
        "tracer.installation",
        "tracer.interrupts",
        "tracer.scratch",
        "tracer.secret_rules",
        "tracer.tokens",
    ),
    "twintap": ("collector", "tracer.errors", "tracer.installation"),
    "testkit": (
        "collector.capture_files.records",
        "collector.decode.host_capture",
        "collector.hops.quality",
        "collector.requests.spans",
        "collector.series",
        "collector.trace",
        "storage_cluster",
    ),
    "benchmarks": ("collector", "storage_cluster", "testkit", "tracer", "viewer"),
}
"""Folder to what else of ours it may import (a name allows what is below it too); `tests` may import everything."""

UNSAFE_ALLOWED = re.compile(r"^tracer/core/capture/src/(ring|socket|privileges|card)\w*(/\w+)?\.rs$")
"""Files of the crates that may contain `unsafe`: the capture ring, its sockets, what an agent gives up, and the ioctls
of cards."""


def _imports(tree: ast.AST) -> Iterator[str]:
    """Every dotted name that a module imports; relative ones cannot leave their package, so they are left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _may_import(name: str, package: str) -> bool:
    owner = name.split(".", 1)[0]
    if owner == package or owner not in {*MAY_IMPORT, "tests"}:
        return True
    return any(name == door or name.startswith(door + ".") for door in MAY_IMPORT[package])


def _offenders(sources: dict[str, str], package: str) -> list[str]:
    """`path: import` for each forbidden import in {path relative to the root: source}."""
    return [
        f"{path}: {name}"
        for path, source in sources.items()
        for name in _imports(ast.parse(source, path))
        if not _may_import(name, package)
    ]


def _rust_code(path: Path) -> str:
    """A Rust source without comments and string literals."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
    return re.sub(r'"(?:\\.|[^"\\])*"', '""', code)


def _rust_sources() -> list[Path]:
    return [path for crate in CRATES for path in crate.rglob("*.rs")]


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_follow_the_flow(package: str) -> None:
    sources = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / package).rglob("*.py")}
    assert sources, f"no sources found in {package}/"
    assert _offenders(sources, package) == []


@pytest.mark.parametrize(
    ("package", "source", "offence"),
    [
        ("tracer", "import collector.schema", "collector.schema"),
        ("collector", "def f():\n    from viewer import app", "viewer.app"),
        ("viewer", "from collector import store", "collector.store"),
        ("viewer", "from collector.queries import hops", None),
        ("storage_cluster", "from tracer.cli import main", "tracer.cli.main"),
        ("storage_cluster", "from tracer.errors import InputError", None),
        ("collector", "from .store import read_info", None),
        ("tracer", "import tests.helpers", "tests.helpers"),
        ("collector", "from testkit import netsim", "testkit.netsim"),
        ("storage_cluster", "from benchmarks.swift import load", "benchmarks.swift.load"),
        ("testkit", "from collector.trace.schema import conform", None),
        ("testkit", "from tests.helpers.scripts import play", "tests.helpers.scripts.play"),
        ("testkit", "from benchmarks import scale", "benchmarks.scale"),
        ("benchmarks", "from testkit.netsim import Network", None),
        ("benchmarks", "from tests.helpers import wire", "tests.helpers.wire"),
        ("tracer", "import numpy", None),
    ],
)
def test_the_rule_itself(package: str, source: str, offence: str | None) -> None:
    path = f"{package}/module.py"
    assert _offenders({path: source}, package) == ([f"{path}: {offence}"] if offence else [])


def test_testkit_runs_without_the_test_framework() -> None:
    sources = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "testkit").rglob("*.py")}
    imports = {(path, name) for path, source in sources.items() for name in _imports(ast.parse(source, path))}
    assert [(path, name) for path, name in imports if name.split(".")[0] == "pytest"] == []


def test_the_header_of_testkit_lists_its_modules() -> None:
    folder = ROOT / "testkit"
    listed = re.findall(r"^    `(\w+)`  ", (folder / "__init__.py").read_text(), re.MULTILINE)
    there = {path.stem for path in folder.iterdir() if path.stem.isidentifier() and not path.stem.startswith("_")}
    assert (sorted(listed), len(listed)) == (sorted(there), len(set(listed)))


@pytest.mark.parametrize("package", ["collector", "storage_cluster", "testkit", "tracer", "viewer"])
def test_tests_lie_in_folders_of_the_same_names(package: str) -> None:
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests" / package).rglob("test_*.py")}
    assert folders
    assert [str(folder) for folder in folders if not (ROOT / folder).is_dir()] == []


FLOORS = (
    ("capture_files",),
    ("trace", "execution"),
    ("services", "clocks"),
    ("decode",),
    ("hops",),
    ("requests",),
    ("findings", "annotations"),
    ("reporting", "analysis"),
    ("export", "scrub", "series", "sql"),
    ("queries",),
    ("assistants", "service"),
    ("remote",),
    ("commands",),
)
"""The rooms of `collector/`, from below: each imports only what is on lower floors."""

EXTENSION = "_core"
"""Below them all: what `collector/core` compiles, and no source here."""


SERVER_FLOORS = (
    ("processor",),
    ("http",),
    ("disks", "auth", "balancer", "foreign", "open_files"),
    ("databases",),
    ("object",),
    ("proxy",),
    ("reservations",),
    ("s3",),
    ("routing",),
    ("process",),
    ("__main__",),
)
"""The folders and modules of `storage_cluster/servers/`, from below."""


def _not_downwards(
    sources: dict[str, str], package: str = "collector", floors: tuple[tuple[str, ...], ...] = FLOORS
) -> list[str]:
    """`path: import` for each import that does not lead to a lower floor, or leads to no room, but for a room's own."""
    floor = {room: number for number, rooms in enumerate(floors) for room in rooms}
    found = []
    for path, source in sources.items():
        own = path.removesuffix(".py").split("/")[0]
        for name in _imports(ast.parse(source, path)):
            room = name.removeprefix(f"{package}.").split(".")[0]
            is_below = floor.get(room, len(floors)) < floor[own] or room in (own, EXTENSION)
            if name.startswith(f"{package}.") and not is_below:
                found.append(f"{path}: {name}")
    return found


def _sources(folder: str) -> dict[str, str]:
    """{path inside the folder: source} of its modules, the folder's own `__init__.py` aside."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    sources = {str(path.relative_to(ROOT / folder)): path.read_text() for path in paths}
    del sources["__init__.py"]
    return sources


def test_every_module_of_the_collector_is_in_a_room() -> None:
    rooms = {room for floor in FLOORS for room in floor}
    there = {path.removesuffix(".py").split("/")[0] for path in _sources("collector")}
    assert there == rooms
    assert (ROOT / "collector" / "__init__.py").read_text() == ""


def test_every_room_says_what_it_computes() -> None:
    inits = {path: source for path, source in _sources("collector").items() if re.fullmatch(r"\w+/__init__\.py", path)}
    assert len(inits) == sum(map(len, FLOORS)), "a folder without __init__.py is no room"
    assert [path for path, source in inits.items() if not ast.get_docstring(ast.parse(source))] == []


def test_imports_between_rooms_go_down() -> None:
    assert _not_downwards(_sources("collector")) == []


@pytest.mark.parametrize(
    ("path", "source", "offence"),
    [
        ("hops/matching.py", "from collector.decode.decoded import Decoded", None),
        ("hops/matching.py", "from collector.hops.counts import HopCounts", None),
        ("hops/matching.py", "from collector.findings import symptoms", "collector.findings.symptoms"),
        ("decode/captures.py", "def f():\n    import collector.analysis", "collector.analysis"),
        ("trace/store.py", "from collector.execution import spill", "collector.execution.spill"),
        ("commands/report.py", "from collector import shelf", "collector.shelf"),
        ("analysis.py", "from collector.requests import spans", None),
        ("capture_files/readers.py", "from collector import _core", None),
    ],
)
def test_the_rule_of_floors_itself(path: str, source: str, offence: str | None) -> None:
    assert _not_downwards({path: source}) == ([f"{path}: {offence}"] if offence else [])


def test_imports_between_the_servers_folders_go_down() -> None:
    sources = _sources("storage_cluster/servers")
    assert {path.removesuffix(".py").split("/")[0] for path in sources} == {
        room for floor in SERVER_FLOORS for room in floor
    }
    assert _not_downwards(sources, "storage_cluster.servers", SERVER_FLOORS) == []


@pytest.mark.parametrize(
    ("path", "name", "allowed"),
    [
        ("disks/devices.py", "http.messages", True),
        ("disks/devices.py", "disks.layout", True),
        ("disks/devices.py", "databases.updates", False),
        ("http/front.py", "disks.layout", False),
        ("databases/container.py", "object.expiry", False),
        ("object/server.py", "proxy.infos", False),
        ("proxy/copy.py", "object.server", True),
        ("proxy/copy.py", "process", False),
        ("process.py", "proxy.server", True),
    ],
)
def test_the_rule_of_the_servers_floors_itself(path: str, name: str, allowed: bool) -> None:
    source = f"import storage_cluster.servers.{name}"
    found = _not_downwards({path: source}, "storage_cluster.servers", SERVER_FLOORS)
    assert found == ([] if allowed else [f"{path}: storage_cluster.servers.{name}"])


def test_what_s3s_clients_and_servers_share_imports_nothing_else_of_ours() -> None:
    sources = {f"s3/{path}": source for path, source in _sources("storage_cluster/s3").items()}
    assert sources
    assert _not_downwards(sources, "storage_cluster", (("s3",),)) == []
    assert _not_downwards({"s3/a.py": "from storage_cluster.bench import model"}, "storage_cluster", (("s3",),))


def test_the_table_of_rooms_is_in_the_order_of_the_floors() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (\d+) \| \[`(\w+)(?:/|\.py)`\]", page, re.MULTILINE)
    assert [(int(number), room) for number, room in rows] == [
        (number, room) for number, rooms in enumerate(FLOORS, 1) for room in rooms
    ]


def test_only_the_python_crates_name_pyo3() -> None:
    manifests = [crate for crate in CRATES if re.search(r"\bpyo3\b", (crate / "Cargo.toml").read_text())]
    sources = [str(path) for path in _rust_sources() if re.search(r"\bpyo3\b", _rust_code(path))]
    assert {crate.name for crate in manifests} == {"python"}
    assert [path for path in sources if "/core/python/" not in path] == []


def test_unsafe_code_is_in_the_capture_ring_only() -> None:
    sources = [path for path in _rust_sources() if re.search(r"\bunsafe\b", _rust_code(path))]
    paths = [str(path.relative_to(ROOT)) for path in sources]
    assert paths, "the capture ring has none: this test reads the wrong files"
    assert [path for path in paths if not UNSAFE_ALLOWED.match(path)] == []


def test_no_lint_is_switched_off_for_a_whole_crate() -> None:
    assert [
        str(path.relative_to(ROOT))
        for path in _rust_sources()
        if re.search(r"#!\[allow\((clippy::all|unsafe_code|warnings)", path.read_text())
    ] == []
