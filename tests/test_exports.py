"""What the package offers to the outside is there and says what it does: commands and extras."""

from collections.abc import Iterator
from importlib.metadata import entry_points, requires

import click
import pytest
from click.testing import CliRunner

from tracer import cli

COMMANDS = sorted(entry_points(group="tracer.commands"), key=lambda point: point.name)


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from _commands(child, f"{path} {name}")


def test_every_command_has_a_summary_and_every_summary_a_command() -> None:
    assert {point.name for point in COMMANDS} == set(cli.SUMMARIES)


@pytest.mark.parametrize("point", COMMANDS, ids=lambda point: point.name)
def test_a_command_loads_and_describes_itself(point) -> None:
    for path, command in _commands(point.load(), f"tracer {point.name}"):
        assert command.help, f"`{path}` has no help text"
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.help, f"`{path} {parameter.opts[0]}` has no help text"


def test_help_lists_every_command_without_importing_any() -> None:
    shown = CliRunner().invoke(cli.tracer, ["--help"], terminal_width=120)
    assert shown.exit_code == 0
    for name, summary in cli.SUMMARIES.items():
        assert name in shown.output
        assert summary in shown.output


def test_extras_that_a_missing_import_names_exist() -> None:
    declared = {part.split("extra ==")[1].strip(" '\"") for part in requires("twintap") or [] if "extra ==" in part}
    assert set(cli.EXTRAS.values()) <= declared
