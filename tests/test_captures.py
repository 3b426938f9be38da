"""The bundled captures give what they should: a `tracer replay` against `expected/`, tshark against the manifest."""

import hashlib
import importlib.machinery
import importlib.util
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from collector.trace.reading import Trace
from collector.trace.schema import TABLES
from tests.helpers.trace_summary import summarise

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("swift-upload-1B", "bench-2-puts")


@pytest.fixture(scope="module", params=NAMES)
def capture(request: pytest.FixtureRequest) -> Path:
    return ROOT / "captures" / str(request.param)


@pytest.fixture(scope="module")
def trace(capture: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _replay(capture, tmp_path_factory.mktemp("captures") / capture.name)


def _replay(capture: Path, trace: Path) -> Path:
    command = [sys.executable, "-m", "tracer", "replay", "-o", str(trace), str(capture)]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return trace


def test_replay_gives_what_is_expected(capture: Path, trace: Path, regenerate: bool) -> None:
    expected = capture / "expected" / "summary.json"
    found = summarise(str(trace))
    if regenerate:
        expected.parent.mkdir(exist_ok=True)
        expected.write_text(found)
    assert found == expected.read_text()


def test_a_second_replay_gives_the_same_to_the_byte(capture: Path, trace: Path, tmp_path: Path) -> None:
    again = _replay(capture, tmp_path / "again")
    for name in TABLES:
        table = Trace(str(trace)).read(name)
        assert table.num_rows or name in ("findings", "samples", "silences", "streams", "annotations"), name
        assert table.equals(Trace(str(again)).read(name)), name


def test_files_are_those_of_the_manifest(capture: Path) -> None:
    manifest = tomllib.loads((capture / "manifest.toml").read_text())
    assert {host["file"] for host in manifest["hosts"]} == {path.name for path in capture.glob("*.pcap*")}
    for host in manifest["hosts"]:
        assert hashlib.sha256((capture / host["file"]).read_bytes()).hexdigest() == host["sha256"]


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed: apt-get install tshark")
def test_tshark_agrees_with_the_manifest(capture: Path) -> None:
    assert _script("verify").verify(capture) == []


def _script(name: str) -> ModuleType:
    """A script of `captures/` as a module."""
    loader = importlib.machinery.SourceFileLoader(f"captures_{name}", str(ROOT / "captures" / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # dataclasses look their module up
    loader.exec_module(module)
    return module
