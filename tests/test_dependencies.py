"""What is pinned, with which hashes, and under which licence: three files that must agree with each other."""

import importlib.metadata
import importlib.util
import re
import runpy
import subprocess
import sys
import tomllib
import warnings
from configparser import ConfigParser
from email.message import Message
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
HASH = r"--hash=sha256:[0-9a-f]{64}"


def _pins() -> list[str]:
    return [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]


def _project_name(pin: str) -> str:
    return re.sub(r"[-_.]+", "-", pin).lower()


def _rows(heading: str) -> list[tuple[str, ...]]:
    """Name, version and licence of each row below a heading of docs/licences.md."""
    (section,) = re.findall(rf"## {heading}\n(.*?)(?:\n## |\Z)", (ROOT / "docs" / "licences.md").read_text(), re.DOTALL)
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in section.splitlines() if "|" in line]
    return rows[2:]


def _script() -> ModuleType:
    loader = SourceFileLoader("licences", str(ROOT / "scripts" / "licences"))
    spec = importlib.util.spec_from_loader("licences", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_every_pinned_version_has_hashes_and_no_other_is_installed() -> None:
    text = (ROOT / "requirements.txt").read_text()
    entries = text.replace("\\\n", "").splitlines()[1:]
    assert [entry for entry in entries if not re.fullmatch(rf"[\w.-]+==[\w.!+]+( +{HASH})+", entry)] == []
    assert sorted(_project_name(entry.split()[0]) for entry in entries) == sorted(map(_project_name, _pins()))


def test_pip_refuses_a_file_of_another_hash(tmp_path: Path) -> None:
    wheel = tmp_path / "nothing-1.0-py3-none-any.whl"
    wheel.write_bytes(b"PK\5\6" + bytes(18))
    (tmp_path / "wanted.txt").write_text(f"nothing==1.0 --hash=sha256:{'0' * 64}\n")
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--find-links", str(tmp_path)]
    done = subprocess.run([*command, "--require-hashes", "-r", str(tmp_path / "wanted.txt")], capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_the_setup_installs_nothing_without_a_hash() -> None:
    text = (ROOT / "scripts" / "setup").read_text()
    installs = re.findall(r'^ *step .*?" (install\w* .*)$', text, re.MULTILINE)
    assert installs == [
        "install_ours --no-deps -e .",
        "install --no-compile --require-hashes -r requirements.txt",
        "install_ours -e '.[all,test]'",
    ]
    assert 'install_ours() { install --no-index --no-build-isolation "$@"; }' in text


def test_both_distributions_and_the_crates_have_one_version() -> None:
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    core = tomllib.loads((ROOT / "collector" / "core" / "python" / "pyproject.toml").read_text())
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
    root = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert {core["project"]["version"], workspace["package"]["version"]} == {config["metadata"]["version"]}
    assert core["build-system"]["requires"] == root["build-system"]["requires"]


def test_the_extra_of_the_analysis_brings_its_core_but_to_an_editable_build(monkeypatch: pytest.MonkeyPatch) -> None:
    core = (ROOT / "collector" / "core" / "python").as_uri()
    assert _core_requirement("", monkeypatch) == [f"twintap-core @ {core}"]
    assert _core_requirement("release", monkeypatch) == [f"twintap-core=={importlib.metadata.version('twintap')}"]
    assert _core_requirement("editable", monkeypatch) == []


def _core_requirement(build: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `setup.py` has the extra `collector` require of `twintap-core`, in a build of this kind."""
    given: dict[str, Any] = {}
    monkeypatch.setenv("TWINTAP_BUILD", build)
    monkeypatch.setattr("setuptools.setup", lambda **arguments: given.update(arguments))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of setuptools-rust, for `py_limited_api`
        runpy.run_path(str(ROOT / "setup.py"))
    return [each for each in given["extras_require"]["collector"] if each.startswith("twintap-core")]


def test_licences_are_listed_of_what_is_pinned() -> None:
    assert [f"{name}=={version}" for name, version, _ in _rows("Python packages")] == _pins()


def test_licences_are_listed_of_every_crate() -> None:
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    others = sorted((each["name"], each["version"]) for each in locked if "source" in each)
    assert [row[:2] for row in _rows("Compiled into the extensions, or used to build or test it")] == others


def test_licences_are_what_the_packages_say() -> None:
    assert (ROOT / "docs" / "licences.md").read_text() == _script().page()
    assert "not stated" not in (ROOT / "docs" / "licences.md").read_text()


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ({"License-Expression": "MIT AND PSF-2.0", "License": "x"}, "MIT AND PSF-2.0"),
        ({"License": "MIT"}, "MIT"),
        ({"License": "Copyright 2001\nAll of it", "Classifier": "License :: OSI Approved :: BSD License"}, "BSD"),
        ({"License": "A" * 50, "Classifier": "License :: OSI Approved :: MIT License"}, "MIT"),
        ({"Classifier": "Topic :: Internet"}, "not stated"),
    ],
)
def test_what_a_package_says_of_its_licence(fields: dict[str, str], licence: str) -> None:
    metadata = Message()
    for name, value in fields.items():
        metadata[name] = value
    assert _script().licence(metadata) == licence


def test_only_tests_use_what_is_under_the_gpl_alone() -> None:
    bound = [name for name, _, licence in _rows("Python packages") if "GPL" in licence and " OR " not in licence]
    assert bound == ["scapy"]
    required = importlib.metadata.requires("twintap") or []
    assert [each for each in required if each.startswith("scapy")] == ['scapy; extra == "test"']
