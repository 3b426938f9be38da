"""Options by which an operator names servers: `--services FILE` and `--name HOST:PORT=NAME`."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from collector.services import services
from tracer.errors import InputError

LAST_PORT = 65_535
_GIVE = "give --name HOST:PORT=NAME, such as --name db1:5432=orders-db"


def naming_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add both options; the command takes them as `own_services` and `names`."""
    names = click.option(
        "--name",
        "names",
        multiple=True,
        metavar="HOST:PORT=NAME",
        help="Use NAME for this server, whatever its messages show; may be given again.",
    )
    own = click.option(
        "--services",
        "own_services",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Also recognise the services that FILE describes (docs/linking.md).  [default: $TWINTAP_SERVICES]",
    )
    return own(names(command))


def operators_names(own_services: Path | None, names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The operator's names of servers: `HOST:PORT` and the name. Also adds the services of the operator's file to the
    known ones.

    Raises: `InputError` for a file or a name that cannot be parsed.
    """
    if own_services is not None:
        os.environ[services.VARIABLE] = str(own_services)
    services.products()
    return tuple(_split_name(text) for text in names)


def _split_name(text: str) -> tuple[str, str]:
    place, _, name = text.partition("=")
    host, _, port = place.rpartition(":")
    if not host or not name.strip() or not port.isdecimal() or not 0 < int(port) <= LAST_PORT:
        raise InputError(f"{text!r} names no server", _GIVE)
    return place, name.strip()
