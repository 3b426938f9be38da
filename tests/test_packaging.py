"""The systemd units: systemd reads them, they expose little, and what they start exists."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).resolve().parent.parent
UNITS = sorted((ROOT / "packaging" / "systemd").glob("*.service"))
INSTALLED = "/usr/bin/tracer"
MOST_EXPOSED = 2.0
"""Of systemd's 10, which a service without any restriction has (9.6)."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="NOT TESTED: systemd's units; systemd-analyze is not installed"
)


@pytest.fixture(params=UNITS, ids=lambda path: path.stem)
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A unit whose program is the one of this environment."""
    path = tmp_path / request.param.name
    tracer = Path(sys.executable).with_name("tracer")
    path.write_text(request.param.read_text().replace(INSTALLED, str(tracer)))
    return path


@needs_systemd
def test_systemd_understands_every_line(unit: Path) -> None:
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert [line for line in (done.stdout + done.stderr).splitlines() if unit.name in line] == []
    assert done.returncode == 0, done.stderr


@needs_systemd
def test_little_is_exposed(unit: Path) -> None:
    argv = ["systemd-analyze", "security", "--offline=yes", "--no-pager", unit]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"})
    if "unrecognized option" in done.stderr:
        pytest.skip("NOT TESTED: exposure; this systemd-analyze reads no unit that is not loaded (before 250)")
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert level, done.stdout + done.stderr
    assert float(level[1]) <= MOST_EXPOSED


def test_what_a_unit_starts_exists(unit: Path) -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    _, name, *words = shlex.split(line)
    (point,) = (point for point in entry_points(group="tracer.commands") if point.name == name)
    command: click.Command = point.load()
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= options


@pytest.mark.parametrize(("name", "capabilities"), [("agent", "CAP_NET_RAW"), ("collector", "")])
def test_a_unit_has_what_its_part_keeps_and_no_more(name: str, capabilities: str) -> None:
    text = (ROOT / "packaging" / "systemd" / f"twintap-{name}.service").read_text()
    assert re.findall(r"^CapabilityBoundingSet=(.*)$", text, re.MULTILINE) == [capabilities]
    assert re.findall(r"^AmbientCapabilities=(.*)$", text, re.MULTILINE) == ([capabilities] if capabilities else [])
    assert "NoNewPrivileges=yes" in text
