"""What is known of services, kept as data in `services.toml`: names by port, programs that work in the background, and
what the parts of a target are called.

A name is a label on a lane or a row; nothing is reconstructed from it.
"""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

PARTS = ("device", "partition", "account", "container", "object")
"""What a target may tell."""


@cache
def known_services() -> Mapping[int, str]:
    """Port to service name, as shipped."""
    return {int(port): str(name) for port, name in _document()["ports"].items()}


def service_name(port: int, services: Mapping[int, str]) -> str:
    """Name of the service on `port`; `port N` where none is known."""
    return services.get(port, f"port {port}")


def is_background(user_agent: str) -> bool:
    """Whether a program of this User-Agent asks for nobody: a replicator, an auditor."""
    return any(
        user_agent.startswith(name) and user_agent[len(name) : len(name) + 1] in ("", " ", "/")
        for name in _document()["background"]["user_agents"]
    )


def target_patterns() -> Mapping[str, str]:
    """For each service whose targets are known, a regular expression with the groups of `PARTS` that they have."""
    return {service: _pattern(shape) for service, shape in _document()["targets"].items()}


@cache
def _document() -> dict[str, Any]:
    return tomllib.loads(files("collector").joinpath("services.toml").read_text(encoding="utf-8"))


def _pattern(shape: str) -> str:
    """`/v1/{account}/{object}`: later parts may be missing, the last takes the rest, a query is none of it."""
    *words, last = shape.strip("/").split("/")
    pattern = f"(?:/(?P<{last[1:-1]}>[^?]+))?"
    for word in reversed(words):
        part = f"(?P<{word[1:-1]}>[^/?]+)" if word.startswith("{") else re.escape(word)
        pattern = f"(?:/{part}{pattern})?" if word.startswith("{") else f"/{part}{pattern}"
    return f"^{pattern}/?(?:[?].*)?$"
