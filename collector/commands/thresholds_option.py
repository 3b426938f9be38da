"""The option by which an operator sets thresholds of findings: `--thresholds FILE`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from collector.findings.thresholds import DEFAULTS, Thresholds, read_thresholds


def thresholds_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option; the command takes it as `thresholds`."""
    return click.option(
        "--thresholds",
        type=click.Path(path_type=Path),
        metavar="FILE",
        callback=_read,
        help="Judge findings by these thresholds where they differ from the defaults (docs/thresholds.md).",
    )(command)


def _read(_context: click.Context, _option: click.Parameter, path: Path | None) -> Thresholds:
    """Raises: `InputError` for a file with an unknown name or an impossible value."""
    return DEFAULTS if path is None else read_thresholds(path)
