"""Containers and manifests: what they may do, and that their options exist. `make check-dist` has the schemas."""

import re
from importlib.metadata import entry_points, version
from pathlib import Path

import click
import pytest

PACKAGING = Path(__file__).resolve().parent.parent / "packaging"
MANIFESTS = {part: (PACKAGING / "kubernetes" / f"{part}.yaml").read_text() for part in ("agent", "collector")}
RECIPES = {part: (PACKAGING / "containers" / f"{part}.Containerfile").read_text() for part in MANIFESTS}
COMMANDS = {"agent": "capture", "collector": "collect"}


def _options(part: str) -> set[str]:
    (point,) = entry_points(group="tracer.commands", name=COMMANDS[part])
    command: click.Command = point.load()
    return {option for parameter in command.params for option in parameter.opts}


@pytest.mark.parametrize("part", MANIFESTS)
def test_a_container_may_do_no_more_than_its_part_needs(part: str) -> None:
    text = MANIFESTS[part]
    assert text.count("drop: [ALL]") == text.count("\n          image: ") == 1
    assert re.findall(r"add: \[(.*)\]", text) == (["NET_RAW"] if part == "agent" else [])
    for line in ("allowPrivilegeEscalation: false", "readOnlyRootFilesystem: true", "type: RuntimeDefault"):
        assert line in text
    assert "privileged: true" not in text
    assert "hostPID" not in text
    assert ("hostNetwork: true" in text) == (part == "agent")
    assert ("runAsNonRoot: true" in text) == (part == "collector")


@pytest.mark.parametrize("part", MANIFESTS)
def test_a_manifest_gives_options_that_exist_and_this_version(part: str) -> None:
    given = set(re.findall(r"^ +- (--[a-z-]+)=", MANIFESTS[part], re.MULTILINE))
    assert {"agent": "--bundle", "collector": "--make-ca"}[part] in given
    assert given <= _options(part)
    assert f"image: twintap-{part}:{version('twintap')}\n" in MANIFESTS[part]


@pytest.mark.parametrize("part", RECIPES)
def test_a_recipe_installs_the_package_and_starts_its_command(part: str) -> None:
    text = RECIPES[part]
    package = {"agent": "twintap-agent_*.deb", "collector": "twintap_*.deb"}[part]
    assert f"\nCOPY dist/{package} /tmp/\n" in text
    assert "\nFROM debian:12-slim\n" in text
    words = re.findall(r'"([^"]+)"', " ".join(re.findall(r"^(?:ENTRYPOINT|CMD) (.*)$", text, re.MULTILINE)))
    assert words[:2] == ["tracer", COMMANDS[part]]
    assert {word for word in words if word.startswith("--")} <= _options(part)


def test_the_user_of_the_collectors_image_is_the_manifests() -> None:
    (image,) = re.findall(r"^USER (\d+):\d+$", RECIPES["collector"], re.MULTILINE)
    assert set(re.findall(r"(?:runAsUser|runAsGroup|fsGroup): (\d+)", MANIFESTS["collector"])) == {image}
