"""What installs a part that is missing, for each way in which the rest was installed."""

import json
import sys
from importlib.metadata import EntryPoint, PathDistribution
from pathlib import Path
from typing import Any

import click
import pytest

from tracer import cli
from tracer.installation import DEBIAN_ARCHITECTURES, DEBIAN_PREFIX, install_command

WHEEL = {"url": "file:///srv/my%20wheels/twintap-0.1.0-cp311-abi3-manylinux_2_34_x86_64.whl", "archive_info": {}}
CHECKOUT = {"url": "file:///src/twintap", "dir_info": {}}
EDITABLE = {"url": "file:///src/twintap", "dir_info": {"editable": True}}
OF_A_SERVER = {"url": "https://example.org/twintap.whl", "archive_info": {}}


def _distribution_in(folder: Path, origin: dict[str, Any] | None) -> PathDistribution:
    info = folder / "twintap-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: twintap\nVersion: 0.1.0\n")
    if origin:
        (info / "direct_url.json").write_text(json.dumps(origin))
    return PathDistribution(info)


@pytest.mark.parametrize(
    ("origin", "file", "wanted"),
    [
        (None, "", "pip install 'twintap[viewer]'"),
        (OF_A_SERVER, "", "pip install 'twintap[viewer]'"),
        (WHEEL, "", "pip install --find-links '/srv/my wheels' 'twintap[viewer]'"),
        (CHECKOUT, "", "pip install '/src/twintap[viewer]'"),
        (EDITABLE, "", "pip install -e '/src/twintap[viewer]'"),
        (None, "pipx_metadata.json", "pipx install --force 'twintap[viewer]'"),
        (None, "uv-receipt.toml", "uv tool install --force 'twintap[viewer]'"),
        (None, "bin/pip", "PREFIX/bin/pip install 'twintap[viewer]'"),
    ],
    ids=["index", "server", "wheel", "checkout", "editable", "pipx", "uv", "environment"],
)
def test_what_installs_an_extra(tmp_path: Path, origin: dict[str, Any] | None, file: str, wanted: str) -> None:
    prefix = tmp_path / "prefix"
    (prefix / "bin").mkdir(parents=True)
    if file:
        (prefix / file).touch()
    command = install_command("viewer", str(prefix), _distribution_in(tmp_path, origin))
    assert command == wanted.replace("PREFIX", str(prefix))


def test_the_debian_package_of_all_takes_the_place_of_the_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _distribution_in(tmp_path, CHECKOUT)
    for machine, architecture in DEBIAN_ARCHITECTURES.items():
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        assert install_command("viewer", DEBIAN_PREFIX, found) == f"apt install ./twintap_0.1.0_{architecture}.deb"


def test_a_command_of_a_package_that_is_not_here_says_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("view", "viewer.commands:command", "tracer.commands")
    monkeypatch.setattr("tracer.cli.entry_points", lambda **_: [point])
    for name in [name for name in sys.modules if name.partition(".")[0] == "viewer"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Without("viewer"), *sys.meta_path])
    with pytest.raises(click.ClickException) as refused:
        cli.tracer.main(["view"], standalone_mode=False)
    wanted = f"`tracer view` needs the package viewer, which is not installed; run: {install_command('viewer')}"
    assert refused.value.message == wanted


def test_a_library_of_one_command_has_an_extra_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mcp", "collector.commands.mcp:command", "tracer.commands")
    monkeypatch.setattr("tracer.cli.entry_points", lambda **_: [point])
    for name in list(sys.modules):
        if name.partition(".")[0] == "mcp" or name in ("collector.commands.mcp", "collector.assistants.server"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Without("mcp"), *sys.meta_path])
    with pytest.raises(click.ClickException, match=r"needs mcp.*, which is not installed") as refused:
        cli.tracer.main(["mcp"], standalone_mode=False)
    assert refused.value.message.endswith(install_command("mcp"))


class _Without:
    """A finder to which one package is not there."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] == self._package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
