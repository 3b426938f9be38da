"""What is installed from wheels works as the checkout does: the wheels and the sdist hold every file that is opened.

Wheels of both distributions are built from the checkout and again from its sdist, each pair is installed into a fresh
environment elsewhere, and there every page is opened and every command run; `twintap` alone is an agent's host. The
extensions were compiled by the setup and are not compiled again: `CARGO` names a stand-in that answers with them. That
the sdist holds all of its sources is seen by their names, and by cargo's reading the workspace. The environments take
other packages from the one that runs the tests.
"""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from collector import _core
from testkit.live_hosts import wait_for
from testkit.loopback_store import CALM, LoopbackStore
from tracer import _capture
from tracer.cli import SUMMARIES

ROOT = Path(__file__).parents[1]
PACKAGES = ("tracer", "collector", "viewer", "storage_cluster", "twintap")
LEFT_OUT = (
    ".git",
    ".venv",
    ".build",
    "target",
    "traces",
    "runs",
    "build",
    "dist",
    "docs",
    "tests",
    "testkit",
    "benchmarks",
)
"""At the top of the checkout, what no build needs; some of it is large, and cargo may be writing `target`."""
MADE = ("target", "__pycache__", "_*.so", "_agent", "*.egg-info", ".*_cache", ".hypothesis")
CARGO = """#!{python}
import json, os, subprocess, sys
cargo = {cargo!r}
if sys.argv[1] not in ("rustc", "build"):
    sys.exit(subprocess.call([cargo, *sys.argv[1:], "--offline"]))
manifest = sys.argv[sys.argv.index("--manifest-path") + 1]
found = json.loads(subprocess.check_output(
    [cargo, "metadata", "--offline", "--no-deps", "--format-version", "1", "--manifest-path", manifest]))
(package,) = [each for each in found["packages"] if os.path.samefile(each["manifest_path"], manifest)]
(name,) = [each["name"] for each in package["targets"]]
kind = "cdylib" if sys.argv[1] == "rustc" else "bin"
target = {{"kind": [kind], "crate_types": [kind], "name": name}}
built = {{"reason": "compiler-artifact", "package_id": package["id"], "target": target, "filenames": [{built!r}[name]]}}
print(json.dumps(built))
"""
SDIST_ONLY = re.compile(r"(tests|testkit|benchmarks|tracer/core|collector/core)/|viewer/[^/]*\.json$")
"""Files of the checkout that are in no wheel."""
SECONDS = 60
SYMBOL_TABLE = 2
"""`SHT_SYMTAB`, the type of the section of an ELF file that `strip` removes."""
CORE = "collector/core/python"
"""Folder of the distribution `twintap-core`."""


@dataclass(frozen=True)
class Installed:
    """An environment with a wheel in it, and a folder to work in."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def tracer(self, *arguments: str, status: int = 0) -> str:
        """What `tracer …` prints there on both streams."""
        done = self._run(str(self.python.with_name("tracer")), *arguments)
        assert done.returncode == status, f"tracer {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def script(self, text: str) -> str:
        """What a Python program prints there."""
        done = self._run(str(self.python), "-c", text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, cwd=self.folder, env=_environment(), capture_output=True, text=True, timeout=SECONDS, check=False
        )

    @contextmanager
    def serving(self, *arguments: str) -> Iterator[str]:
        """`tracer …` there while the context lasts; yields the address that it prints."""
        argv = [str(self.python.with_name("tracer")), *arguments]
        process = subprocess.Popen(
            argv, cwd=self.folder, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            line = wait_for(process, "http://")
            yield next(word for word in line.split() if word.startswith("http://")).rstrip("/")
        finally:
            process.terminate()
            process.communicate(timeout=SECONDS)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return kept | {"PYTHONUNBUFFERED": "1"}


def _run(argv: list[str | Path], cwd: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist, a wheel of the checkout, and one of the sdist, by name."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    for path in ROOT.iterdir():
        if path.name not in LEFT_OUT and path.is_dir():
            shutil.copytree(path, source / path.name, ignore=shutil.ignore_patterns(*MADE))
    for path in filter(Path.is_file, ROOT.iterdir()):
        shutil.copy(path, source)
    cargo = folder / "cargo"
    real = shutil.which("cargo") or str(Path.home() / ".cargo" / "bin" / "cargo")
    agent = folder / "twintap-agent"
    shutil.copy(ROOT / "tracer" / "_agent", agent)
    compiled = {"_capture": str(_capture.__file__), "_core": str(_core.__file__), "twintap-agent": str(agent)}
    cargo.write_text(CARGO.format(python=sys.executable, cargo=real, built=compiled))
    cargo.chmod(0o755)
    environment = os.environ | {"CARGO": str(cargo), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    make_sdist = "import sys; sys.path.insert(0, 'scripts'); import build_backend as b; b.build_sdist(sys.argv[1])"
    _run([sys.executable, "-c", make_sdist, folder], source, environment)
    (sdist,) = folder.glob("*.tar.gz")
    unpacked = folder / "unpacked"
    shutil.unpack_archive(sdist, unpacked)
    made = {"sdist": sdist}
    for name, where, build in (("wheel", source, "release"), ("wheel of the sdist", next(unpacked.iterdir()), "")):
        out = folder / name.replace(" ", "-")
        pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", out)
        _run([*pip, ".", f"./{CORE}"], where, environment | {"TWINTAP_BUILD": build})
        (made[name],) = out.glob("twintap-*.whl")
        (made[f"{name}: core"],) = out.glob("twintap_core-*.whl")
    return made


def _install(folder: Path, *wheels: Path) -> Installed:
    """A fresh environment in `folder` with these wheels; other packages are those of the environment of the tests."""
    _run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], folder, dict(os.environ))
    # What a .pth file names is searched, but the .pth files there are not read: so not the editable install there.
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--python", folder / "venv" / "bin" / "python", "install", "-q")
    _run([*pip, "--no-deps", "--no-index", "--no-compile", *wheels], folder, dict(os.environ))
    return Installed(folder)


@pytest.fixture(scope="module")
def installed(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel of the sdist, which holds what that of the checkout holds."""
    name = "wheel of the sdist"
    return _install(tmp_path_factory.mktemp("installed"), built[name], built[f"{name}: core"])


@pytest.fixture(scope="module")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a store answers."""
    with LoopbackStore(tmp_path_factory.mktemp("store"), intervals=CALM) as store:
        yield store.auth_url


def _files_of_the_checkout(*folders: str) -> set[str]:
    """Files of the checkout that are no one's build; all of them where it is no repository."""
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        return {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}
    found = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    names = {path.relative_to(ROOT).as_posix() for path in found if path.suffix != ".so"}
    return {name for name in names if not {"target", "__pycache__"} & set(name.split("/"))}


@pytest.mark.parametrize("name", ["wheel", "wheel of the sdist"])
def test_every_file_of_the_packages_is_in_the_wheel(built: dict[str, Path], name: str) -> None:
    held = _names(built[name])
    wanted = {name for name in _files_of_the_checkout(*PACKAGES) if not SDIST_ONLY.match(name)}
    assert sorted(wanted - held) == []
    assert [name for name in held if SDIST_ONLY.match(name)] == []


def test_a_wheel_of_the_checkout_and_one_of_the_sdist_hold_the_same(built: dict[str, Path]) -> None:
    assert _contents(built["wheel"]) == _contents(built["wheel of the sdist"])


def _contents(wheel: Path) -> dict[str, bytes]:
    """All of a wheel's files but the record of their digests, which names its own time."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def _names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.mark.parametrize("name", ["wheel", "wheel of the sdist"])
def test_each_wheel_has_one_extension_and_serves_every_python_from_3_11_on(built: dict[str, Path], name: str) -> None:
    extensions = {key: sorted(each for each in _names(built[key]) if ".so" in each) for key in (name, f"{name}: core")}
    assert extensions == {name: ["tracer/_capture.abi3.so"], f"{name}: core": ["collector/_core.abi3.so"]}
    for key in extensions:
        assert re.fullmatch(r"twintap(_core)?-[\d.]+-cp311-abi3-linux_\w+\.whl", built[key].name), built[key].name


def test_the_wheel_of_the_core_holds_nothing_else(built: dict[str, Path]) -> None:
    others = {name for name in _names(built["wheel: core"]) if ".dist-info/" not in name}
    assert others == {"collector/_core.abi3.so"}


@pytest.mark.parametrize("name", ["wheel", "wheel of the sdist"])
def test_a_wheel_for_others_requires_the_core_by_version(built: dict[str, Path], name: str) -> None:
    with zipfile.ZipFile(built[name]) as archive:
        (metadata,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        text = archive.read(metadata).decode()
    found = set(re.findall(r"^Requires-Dist: (twintap-core.*)$", text, re.MULTILINE))
    assert {re.sub(r"\d[\d.]*", "N", each) for each in found} == {
        f'twintap-core==N; extra == "{extra}"' for extra in ("all", "collector", "mcp", "otlp-grpc", "scale", "viewer")
    }


def test_an_agents_host_captures_and_says_what_the_analysis_needs(built: dict[str, Path], tmp_path: Path) -> None:
    agent = _install(tmp_path, built["wheel"])
    assert "--collector" in agent.tracer("capture", "--help")
    for command, extra in (("replay", "collector"), ("view", "viewer")):
        assert agent.tracer(command, "--help", status=2) == (
            f"Error: `tracer {command}` needs collector._core, which is not installed; "
            f"run: pip install --find-links {built['wheel'].parent} 'twintap[{extra}]'\n"
        )


def test_the_agents_extension_is_small_and_both_are_stripped() -> None:
    assert Path(str(_capture.__file__)).stat().st_size <= 6_000_000
    for module in (_capture, _core):
        assert SYMBOL_TABLE not in _section_types(Path(str(module.__file__)).read_bytes()), module.__name__


def _section_types(elf: bytes) -> set[int]:
    """The types of the sections of a 64-bit little-endian ELF file."""
    (offset,) = struct.unpack_from("<Q", elf, 40)
    header_len, count = struct.unpack_from("<HH", elf, 58)
    return {struct.unpack_from("<I", elf, offset + place * header_len + 4)[0] for place in range(count)}


def test_the_sdist_holds_all_sources(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    wanted = _files_of_the_checkout(*PACKAGES) | {
        "README.md",
        "LICENSE",
        "constraints.txt",
        "requirements.txt",
        "pyproject.toml",
        "scripts/build_backend.py",
        "setup.cfg",
        "setup.py",
    }
    assert sorted(wanted - held) == []


def test_it_is_the_installed_one_that_runs(installed: Installed) -> None:
    said = installed.script(f"for name in {PACKAGES}: print(__import__(name).__file__)").split()
    assert all(Path(file).is_relative_to(installed.folder / "venv") for file in said)
    assert len(said) == len(PACKAGES)


def test_every_command_says_what_it_does(installed: Installed) -> None:
    script = """
import click
from importlib.metadata import entry_points
def walk(command, path):
    print(path)
    command.get_help(click.Context(command, info_name=path))
    for name, child in getattr(command, "commands", {}).items():
        walk(child, f"{path} {name}")
for point in entry_points(group="tracer.commands"):
    walk(point.load(), point.name)
"""
    said = installed.script(script)
    assert set(SUMMARIES) <= set(said.splitlines())
    assert "bench paper 004" in said


def test_captures_become_a_trace_and_a_report(installed: Installed) -> None:
    assert "500.8 ms" in installed.tracer("replay", "-o", "trace", str(ROOT / "captures" / "bench-2-puts"))
    assert json.loads(installed.tracer("report", "trace", "--json"))["requests"]["count"] == 4
    installed.tracer("report", "trace", "--html", "report.html")
    assert "swift-proxy" in (installed.folder / "report.html").read_text()
    installed.tracer("export", "trace", "--to", "csv", "-o", "tables")


def test_every_page_of_the_viewer_opens(installed: Installed) -> None:
    captures = str(ROOT / "captures" / "bench-2-puts")
    installed.tracer("replay", "-o", "viewed", captures)
    pages = ("requests", "overlay", "services", "latency", "quality", "bench", "compare")
    folder = ROOT / "viewer" / "assets"
    assets = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    with installed.serving("view", "viewed", "--no-browser", "--listen", "127.0.0.1:0") as url:
        for path in ("", *(f"pages/{name}" for name in pages), "api/overview", *(f"assets/{name}" for name in assets)):
            assert _status(f"{url}/{path}") == 200, path
    with installed.serving("view", "--no-browser", "--listen", "127.0.0.1:0") as url:
        assert _status(f"{url}/") == 200


def test_the_collector_and_the_load_services_open_their_pages(installed: Installed) -> None:
    with installed.serving("collect", "--data", "data", "--listen", "127.0.0.1:0") as url:
        assert _status(f"{url}/docs") == 200
    with installed.serving("bench", "driver", "--listen", "127.0.0.1:0") as driver:
        assert _status(f"{driver}/docs") == 200
        with installed.serving("bench", "controller", "--listen", "127.0.0.1:0", "--driver", driver) as url:
            for path in ("", "docs", "api/state"):
                assert _status(f"{url}/{path}") == 200, path


def test_a_load_runs_and_is_compared(installed: Installed, loopback: str) -> None:
    for folder in ("one", "two"):
        said = installed.tracer("bench", "run", "put", "--count", "8", "--size", "10", "--auth", loopback, "-o", folder)
        assert "run: " in said
    assert "8" in installed.tracer("bench", "report", "one")
    assert "put/put" in installed.tracer("bench", "compare", "one", "two")


def test_the_papers_workloads_and_the_topologies_can_be_read(installed: Installed) -> None:
    script = """
from storage_cluster import topology
from storage_cluster.bench import formats
from storage_cluster.bench.paper import experiment_000, experiment_004
for name in ("004-small.xml", "004-large.xml"):
    formats.load(experiment_004._FILES / name)
for file in topology.BUNDLED_DIR.glob("*.toml"):
    topology.load(file)
    print(file.name)
"""
    assert len(installed.script(script).split()) == len(list((ROOT / "storage_cluster" / "topologies").glob("*.toml")))


def test_what_needs_more_than_is_here_says_so_in_one_line(installed: Installed) -> None:
    """A capture of an interface that is not there, and a recording without a cluster."""
    for arguments in (("capture", "-i", "nonesuch0", "--write", "segments"), ("record", "true")):
        said = installed.tracer(*arguments, status=2).splitlines()
        assert len(said) == 1, said


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
