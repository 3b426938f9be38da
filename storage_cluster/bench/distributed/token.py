"""Reads the token of drivers and controllers from a file, the environment or a prompt, as all our services do."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from tracer.tokens import read_token, token_options

VARIABLE = "TWINTAP_BENCH_TOKEN"


def token_option(purpose: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--token` and `--token-file` to a command; it takes the token itself, "" if none was given."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_token(token: str | None, token_file: Path | None, **given: Any) -> Any:
            return command(token=read_token(token, token_file, VARIABLE), **given)

        return token_options(purpose, VARIABLE)(with_token)

    return decorate
