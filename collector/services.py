"""What is known of services, kept as data in `services.toml`: names by port and by User-Agent, programs that work in
the background, headers that hold a transaction id, and what the parts of a target are called.

A name is a label on a lane or a row; nothing is reconstructed from it. The file that `TWINTAP_SERVICES` names adds to
what is shipped: of a table its entries replace those of the same key, of a list they go before the others.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from tracer.errors import InputError

VARIABLE = "TWINTAP_SERVICES"
"""The environment variable that names a file of the operator's own."""
PARTS = ("device", "partition", "account", "container", "object")
"""What a target may tell."""


def known_services() -> Mapping[int, str]:
    """Port to service name.

    Raises: `InputError` if the operator's own file is none; so do all functions here.
    """
    return {int(port): str(name) for port, name in _document()["ports"].items()}


def id_headers() -> tuple[str, ...]:
    """Names of HTTP headers that hold a transaction id, the most telling first."""
    return tuple(_document()["ids"]["headers"])


def service_name(port: int, services: Mapping[int, str]) -> str:
    """Name of the service on `port`; `port N` where none is known."""
    return services.get(port, f"port {port}")


def is_background(user_agent: str) -> bool:
    """Whether a program of this User-Agent asks for nobody: a replicator, an auditor."""
    return _daemon(user_agent, _own_path()) is not None


def client_service(user_agent: str) -> str | None:
    """The service or the daemon that asks with this User-Agent; None where that is not known."""
    return _asker(user_agent, _own_path())


@lru_cache(maxsize=1 << 10)
def _asker(user_agent: str, own: str) -> str | None:
    callers = _merged(own)["callers"]
    name = next((name for name in callers if _begins(user_agent, name)), None)
    return _daemon(user_agent, own) if name is None else callers[name]


@lru_cache(maxsize=1 << 10)
def _daemon(user_agent: str, own: str) -> str | None:
    return next((name for name in _merged(own)["background"]["user_agents"] if _begins(user_agent, name)), None)


def _begins(user_agent: str, name: str) -> bool:
    return user_agent.startswith(name) and user_agent[len(name) : len(name) + 1] in ("", " ", "/")


def target_patterns() -> Mapping[str, str]:
    """For each service whose targets are known, a regular expression with the groups of `PARTS` that they have."""
    return {service: _pattern(shape) for service, shape in _document()["targets"].items()}


def _document() -> dict[str, Any]:
    return _merged(_own_path())


def _own_path() -> str:
    return os.environ.get(VARIABLE, "")


def target_words(part: str) -> Mapping[str, tuple[str, int]]:
    """For each service whose targets name one of `PARTS`: what these begin with, and which word after that it is."""
    found = {}
    for service, shape in _document()["targets"].items():
        before, _, named = shape.partition("{")
        words = ("{" + named).split("/")
        if "{" + part + "}" in words:
            found[service] = before, words.index("{" + part + "}")
    return found


@cache
def _merged(own: str) -> dict[str, Any]:
    document = tomllib.loads(files("collector").joinpath("services.toml").read_text(encoding="utf-8"))
    for name, table in (_own(Path(own)) if own else {}).items():
        if name not in document or not isinstance(table, dict):
            raise InputError(f"{own} has {name} = …", f"its tables may be {', '.join(f'[{one}]' for one in document)}")
        document[name] = _joined(document[name], table, own)
    _check(document, own)
    return document


def _own(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}", f"mend it, or unset {VARIABLE}") from None


def _joined(shipped: dict[str, Any], own: dict[str, Any], path: str) -> dict[str, Any]:
    joined = shipped | own
    for key in (key for key in own if isinstance(shipped.get(key), list)):
        if not isinstance(own[key], list):
            raise InputError(f"in {path}, {key} is no list", f'write {key} = ["…"]')
        joined[key] = [*own[key], *shipped[key]]
    return joined


def _check(document: dict[str, Any], own: str) -> None:
    """What code relies on."""
    texts = [*document["ids"]["headers"], *document["background"]["user_agents"]]
    texts += [text for name in ("ports", "callers", "targets") for text in document[name].values()]
    wrong = [port for port in document["ports"] if not port.isdecimal()]
    wrong += [repr(text) for text in texts if not isinstance(text, str)]
    if wrong:
        raise InputError(f"{own} has {wrong[0]}", "ports are numbers, and what they are called are texts")


def _pattern(shape: str) -> str:
    """`/v1/{account}/{object}`: later parts may be missing, the last takes the rest, a query is none of it."""
    *words, last = shape.strip("/").split("/")
    pattern = f"(?:/(?P<{last[1:-1]}>[^?]+))?"
    for word in reversed(words):
        part = f"(?P<{word[1:-1]}>[^/?]+)" if word.startswith("{") else re.escape(word)
        pattern = f"(?:/{part}{pattern})?" if word.startswith("{") else f"/{part}{pattern}"
    return f"^{pattern}/?(?:[?].*)?$"
