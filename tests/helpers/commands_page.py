"""`docs/commands.md`, written from the commands themselves, so that the two cannot differ.

`python -m tests.helpers.commands_page` prints it. click keeps a command's `--help` as it was first asked for, so a
process in which commands ran before may have another.
"""

from collections.abc import Iterator
from importlib.metadata import entry_points

import click

from tracer.cli import SUMMARIES, tracer

WIDTH = 100
INTRODUCTION = """# Commands

What `tracer COMMAND --help` prints, for every command. Written by a test from the commands themselves:
`make test-python PYTEST_ARGS='tests/test_docs.py --regenerate'` writes it anew.

Every command exits 0 when it did what was asked. What the operator can mend (a wrong file, a missing privilege, a port
in use, a full disk) is reported in one line on standard error, with exit status 2. `tracer record` and `tracer cluster
exec` exit with the status of the command they ran.
"""


def render() -> str:
    """The whole page."""
    points = {point.name: point for point in entry_points(group="tracer.commands")}
    parts = [INTRODUCTION]
    for name, summary in SUMMARIES.items():
        parts.append(f"\n## tracer {name}\n\n{summary}\n")
        parts += _helps(points[name].load(), f"tracer {name}")
    return "".join(parts)


def _helps(command: click.Command, path: str, parent: click.Context | None = None) -> Iterator[str]:
    context = click.Context(
        command,
        info_name=path.rsplit(maxsplit=1)[-1] if parent else path,
        parent=parent,
        max_content_width=WIDTH,
        help_option_names=tracer.context_settings["help_option_names"],
    )
    context.terminal_width = WIDTH
    text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    yield f"\n```text\n{text}\n```\n"
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield f"\n### {path} {name}\n"
            yield from _helps(child, f"{path} {name}", context)


if __name__ == "__main__":
    print(render(), end="")
