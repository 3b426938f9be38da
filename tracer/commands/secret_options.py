"""Options by which an operator defines secrets: `--secrets FILE` and `--keep-secrets`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tracer import secret_rules


def secret_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add both options. They are in force before the command runs, which does not take them."""
    own = click.option(
        "--secrets",
        type=click.Path(path_type=Path),
        metavar="FILE",
        callback=_use,
        expose_value=False,
        help=f"Also overwrite the secrets that FILE describes (docs/security.md).  [default: ${secret_rules.VARIABLE}]",
    )
    kept = click.option(
        "--keep-secrets",
        is_flag=True,
        callback=_keep,
        expose_value=False,
        help="Do not overwrite tokens, passwords and cookies in what is stored.",
    )
    return own(kept(command))


def _use(_context: click.Context, _parameter: click.Parameter, file: Path | None) -> None:
    if file is not None:
        secret_rules.choose_file(file)
        secret_rules.rules()


def _keep(_context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        secret_rules.keep_secrets()
