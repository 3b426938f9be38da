"""The Debian packages: what `dpkg-deb` is given, and that it can be removed again. `make check-dist` installs them."""

import importlib.util
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
EPOCH_SECONDS = 1_767_225_600
PACKAGES = ("twintap-agent", "twintap")


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def debian(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script, with which nothing asks dpkg for this processor."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(EPOCH_SECONDS))
    module = _script("debian_packages")
    monkeypatch.setattr(module, "architecture", lambda: "amd64")
    return module


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder of Python packages: ours, without the rest."""
    folder = tmp_path / "packages"
    for name in ("tracer/cli.py", "tracer/_agent", "collector/analysis.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def _entries(tree: Path) -> dict[str, tuple[int, int, str]]:
    """Each path to its mode, time, and text or target."""
    found = {}
    for path in sorted(tree.rglob("*")):
        status = path.lstat()
        text = (
            str(path.readlink()) if path.is_symlink() else path.read_bytes().decode("latin-1") if path.is_file() else ""
        )
        found[str(path.relative_to(tree))] = (status.st_mode & 0o777, int(status.st_mtime), text)
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_a_tree_has_the_command_the_units_and_their_settings(
    debian: ModuleType, packages: Path, tmp_path: Path, package: str
) -> None:
    debian.stage(package, packages, tmp_path / "tree")
    tree = _entries(tmp_path / "tree")
    parts = ("agent", "collector") if package == "twintap" else ("agent",)
    assert tree["usr/bin/tracer"][2] == "../lib/twintap/bin/tracer"
    assert tree["usr/lib/twintap/bin/tracer"][2].startswith("#!/usr/lib/twintap/bin/python3 -I\n")
    assert tree["usr/lib/twintap/bin/tracer"][0] == tree["usr/bin/twintap-agent"][0] == 0o755
    assert tree["usr/lib/twintap/lib/python3/site-packages/tracer/_agent"][2] == "/usr/bin/twintap-agent"
    units = {name for name in tree if name.endswith(".service")}
    assert units == {f"usr/lib/systemd/system/twintap-{part}.service" for part in parts}
    settings = {f"etc/twintap/{part}.env": 0o640 for part in parts}
    assert {name: tree[name][0] for name in tree if name.endswith(".env")} == settings
    assert tree["DEBIAN/conffiles"][2].split() == [f"/{name}" for name in settings]
    assert {time for _, time, _ in tree.values()} == {EPOCH_SECONDS}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_tree_is_the_same_when_it_is_made_again(
    debian: ModuleType, packages: Path, tmp_path: Path, package: str
) -> None:
    for name in ("one", "two"):
        debian.stage(package, packages, tmp_path / name)
    assert _entries(tmp_path / "one") == _entries(tmp_path / "two")


@pytest.mark.parametrize("package", PACKAGES)
def test_control_says_what_it_is_and_takes_the_others_place(
    debian: ModuleType, packages: Path, tmp_path: Path, package: str
) -> None:
    debian.stage(package, packages, tmp_path / "tree")
    lines = (tmp_path / "tree" / "DEBIAN" / "control").read_text().splitlines()
    fields = dict(line.split(": ", 1) for line in lines if ": " in line and not line.startswith(" "))
    (other,) = set(PACKAGES) - {package}
    assert fields["Package"] == package
    assert fields["Version"] == version("twintap")
    assert fields["Conflicts"] == fields["Replaces"] == other
    assert fields.get("Provides") == (other if package == "twintap" else None)
    assert "python3 (>= 3.11)" in fields["Depends"]


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("name", ["postinst", "prerm", "postrm"])
def test_a_maintainers_script_is_a_script(debian: ModuleType, package: str, name: str) -> None:
    text = debian.maintainer_script(package, name)
    assert "@" not in text
    assert "\nset -e\n" in text
    done = subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_units_read_the_settings_that_packages_have(debian: ModuleType) -> None:
    for part, user in debian.USERS.items():
        text = (ROOT / "packaging" / "systemd" / f"twintap-{part}.service").read_text()
        assert f"\nEnvironmentFile=-/etc/twintap/{part}.env\n" in text
        assert f"\nUser={user}\n" in text
        variable = f"TWINTAP_{part.upper()}_OPTIONS"
        assert f"${variable}\n" in text
        assert f"\n{variable}=" in (ROOT / "packaging" / "debian" / f"{part}.env").read_text()


def test_vendored_packages_are_those_that_are_pinned_and_no_test_tools() -> None:
    vendored = _script("vendored")
    agent, every = vendored.required_names([]), vendored.required_names(["all"])
    assert agent == {"click"}
    assert {"click", "polars", "fastapi"} <= every
    assert not {"pytest", "scapy", "ruff"} & every
    lines = vendored.requirement_lines(agent).splitlines()
    assert len(lines) == len(agent)
    assert all("--hash=sha256:" in line for line in lines)
