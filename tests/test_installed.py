"""What is installed from a wheel works as the checkout does: the wheel and the sdist hold every file that is opened.

A wheel is built from the checkout and another from its sdist, each is installed into a fresh environment elsewhere, and
there every page is opened and every command run. The core was compiled by the setup and is not compiled again: `CARGO`
names a stand-in that answers with it. That the sdist holds all of its sources is seen by their names, and by cargo's
reading the workspace. The environments take other packages from the one that runs the tests.
"""

import json
import os
import shutil
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

from testkit.live_hosts import wait_for
from testkit.loopback_store import LoopbackStore
from tracer import _core
from tracer.cli import SUMMARIES

ROOT = Path(__file__).parents[1]
PACKAGES = ("tracer", "collector", "viewer", "storage_cluster")
LEFT_OUT = (".git", ".venv", ".build", "traces", "runs", "build", "dist", "docs", "tests", "testkit", "benchmarks")
"""At the top of the checkout, what no build needs; some of it is large."""
MADE = ("target", "__pycache__", "_core*.so", "*.egg-info", ".*_cache", ".hypothesis")
CARGO = """#!{python}
import json, os, subprocess, sys
cargo = {cargo!r}
if sys.argv[1] != "rustc":
    sys.exit(subprocess.call([cargo, *sys.argv[1:], "--offline"]))
manifest = sys.argv[sys.argv.index("--manifest-path") + 1]
found = json.loads(subprocess.check_output(
    [cargo, "metadata", "--offline", "--no-deps", "--format-version", "1", "--manifest-path", manifest]))
(package,) = [each["id"] for each in found["packages"] if each["name"] == "twintap-python"]
target = {{"kind": ["cdylib"], "crate_types": ["cdylib"], "name": "_core"}}
print(json.dumps({{"reason": "compiler-artifact", "package_id": package, "target": target, "filenames": [{core!r}]}}))
"""
SECONDS = 60


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
    return kept | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}


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
    cargo.write_text(CARGO.format(python=sys.executable, cargo=real, core=str(_core.__file__)))
    cargo.chmod(0o755)
    environment = os.environ | {"CARGO": str(cargo), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    make_sdist = "import sys, setuptools.build_meta as backend; backend.build_sdist(sys.argv[1])"
    _run([sys.executable, "-c", make_sdist, folder], source, environment)
    (sdist,) = folder.glob("*.tar.gz")
    unpacked = folder / "unpacked"
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    made = {"sdist": sdist}
    for name, where in (("wheel", source), ("wheel of the sdist", next(unpacked.iterdir()))):
        out = folder / name.replace(" ", "-")
        pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", out, ".")
        _run(list(pip), where, environment)
        (made[name],) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module", params=["wheel", "wheel of the sdist"])
def installed(request: pytest.FixtureRequest, built: dict[str, Path], tmp_path_factory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    _run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], folder, dict(os.environ))
    # What a .pth file names is searched, but the .pth files there are not read: so not the editable install there.
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--python", folder / "venv" / "bin" / "python", "install", "-q")
    _run([*pip, "--no-deps", "--no-index", "--no-compile", built[request.param]], folder, dict(os.environ))
    return Installed(folder)


@pytest.fixture(scope="module")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a store answers."""
    with LoopbackStore(tmp_path_factory.mktemp("store")) as store:
        yield store.auth_url


def _tracked(*folders: str) -> set[str]:
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
    names = {path.relative_to(ROOT).as_posix() for path in found if not path.name.startswith("_core.cpython")}
    return {name for name in names if not {"target", "__pycache__"} & set(name.split("/"))}


@pytest.mark.parametrize("name", ["wheel", "wheel of the sdist"])
def test_every_file_of_the_packages_is_in_the_wheel(built: dict[str, Path], name: str) -> None:
    wanted = {name for name in _tracked(*PACKAGES) if not name.startswith("tracer/core/")}
    with zipfile.ZipFile(built[name]) as archive:
        held = set(archive.namelist())
    assert sorted(wanted - held) == []
    assert any(name.startswith("tracer/_core.") and name.endswith(".so") for name in held)
    assert not any(name.startswith(("tests/", "testkit/", "benchmarks/")) for name in held)


def test_the_sdist_holds_all_sources(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    wanted = _tracked(*PACKAGES) | {
        "README.md",
        "LICENSE",
        "constraints.txt",
        "requirements.txt",
        "pyproject.toml",
        "setup.cfg",
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
    assets = [path.name for path in sorted((ROOT / "viewer" / "assets").iterdir())]
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
