"""The option by which an operator says how a service logs: `--log-format`."""

from collections.abc import Callable
from typing import Any

import click

from tracer.service_log import LogFormat, start_log


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add it. It is in force before the command runs, which does not take it."""
    option = click.option(
        "--log-format",
        type=click.Choice([LogFormat.TEXT.value, LogFormat.JSON.value]),
        default=LogFormat.TEXT.value,
        show_default=True,
        callback=lambda _context, _option, form: start_log(LogFormat(form)),
        is_eager=True,
        expose_value=False,
        help="How this service logs: lines of text, or JSON, one object a line.",
    )
    return option(command)
