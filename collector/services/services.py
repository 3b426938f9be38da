"""Knowledge about services, read from `services.toml`: clues by which messages reveal a server's software, User-Agents
of services and of background programs, headers with transaction ids, and the parts of targets.

The operator's own file (`--services FILE`, or the one named by `TWINTAP_SERVICES`) extends the shipped one: entries of
its tables precede the shipped ones and replace those with the same key; entries of its lists precede the shipped ones.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgspec import Struct

from collector import _core
from collector.capture_files.readers import Clue
from tracer.errors import InputError

VARIABLE = "TWINTAP_SERVICES"
"""The environment variable that names the operator's own file."""
MOST_OF_A_KIND = 64
"""At most so many headers, and so many byte sequences, are searched by the core."""
PARTS = ("device", "partition", "account", "container", "object")
"""The parts that a target may name."""
LEAST_SHARE = 0.05
"""Least share of a server's requests or answers with a clue, unless the product defines another: a scanner asks every
server for things that only a few have."""


class Product(Struct, frozen=True):
    """Software that a server may run, and the clues that show it."""

    name: str
    seen: tuple[tuple[str, ...], ...]  # sets of clues; all clues of one set must have been seen
    least: float  # share of the server's messages that one clue of the set must have
    one: bool  # all servers of it are one service
    protocol: bool  # shown in addition to a name, never as a name
    beside: str | None  # a product that must be seen on the same host


def id_headers() -> tuple[str, ...]:
    """Names of HTTP headers that hold a transaction id, the most specific first."""
    return tuple(_document()["ids"]["headers"])


def is_background(user_agent: str) -> bool:
    """Whether a program with this User-Agent works in the background: a replicator, an auditor."""
    return _daemon(user_agent, _own_path()) is not None


def client_service(user_agent: str) -> str | None:
    """The service or daemon with this User-Agent; None if unknown."""
    return _caller_service(user_agent, _own_path())


@lru_cache(maxsize=1 << 10)
def _caller_service(user_agent: str, own: str) -> str | None:
    callers = _merged_document(own)["callers"]
    name = next((name for name in callers if _starts_with_name(user_agent, name)), None)
    return _daemon(user_agent, own) if name is None else callers[name]


@lru_cache(maxsize=1 << 10)
def _daemon(user_agent: str, own: str) -> str | None:
    return next(
        (name for name in _merged_document(own)["background"]["user_agents"] if _starts_with_name(user_agent, name)),
        None,
    )


def _starts_with_name(user_agent: str, name: str) -> bool:
    return user_agent.startswith(name) and user_agent[len(name) : len(name) + 1] in ("", " ", "/")


def target_patterns() -> Mapping[str, str]:
    """For each service whose targets are known, a regular expression with the groups of `PARTS` that they have."""
    return {service: _pattern(shape) for service, shape in _document()["targets"].items()}


def has_ring(service: str) -> bool:
    """Whether a ring assigns the service's data to devices: its targets name a device and a partition."""
    shape = _document()["targets"].get(service, "")
    return "{device}" in shape and "{partition}" in shape


def clues() -> Mapping[str, Clue]:
    """The clues to search in messages, by name."""
    return _clues(_own_path())


def products() -> tuple[Product, ...]:
    """Software that can be recognised, the most specific first."""
    return _products(_own_path())


def names_by_operator() -> Mapping[str, str]:
    """The operator's names of servers, by `HOST:PORT`."""
    return dict(_document()["names"])


def ports_by_operator() -> Mapping[int, str]:
    """The operator's names of services by port."""
    return {int(port): name for port, name in _document()["ports"].items()}


def usual_service(port: int) -> str | None:
    """The service that usually listens on a port: only a hint."""
    found: dict[str, str] = _document()["usual"]
    return found.get(str(port))


def is_any_program(process: str) -> bool:
    """Whether a process of this name may be any server: an interpreter, or one that holds a port for another."""
    return any(fnmatchcase(process, pattern) for pattern in _document()["processes"]["any"])


def common_targets() -> frozenset[str]:
    """Targets that any server may be asked for."""
    return frozenset(_document()["common"]["targets"])


def _document() -> dict[str, Any]:
    return _merged_document(_own_path())


def _own_path() -> str:
    return os.environ.get(VARIABLE, "")


def target_words(part: str) -> Mapping[str, tuple[str, int]]:
    """For each service whose targets name `part`: the prefix of these targets, and the number of the word after it."""
    found = {}
    for service, shape in _document()["targets"].items():
        before, _, named = shape.partition("{")
        words = ("{" + named).split("/")
        if "{" + part + "}" in words:
            found[service] = before, words.index("{" + part + "}")
    return found


@cache
def _merged_document(own: str) -> dict[str, Any]:
    document = tomllib.loads(files("collector.services").joinpath("services.toml").read_text(encoding="utf-8"))
    for name, table in (_read_own_file(Path(own)) if own else {}).items():
        if name not in document or not isinstance(table, dict):
            raise InputError(f"{own} has {name} = …", f"its tables may be {', '.join(f'[{one}]' for one in document)}")
        document[name] = _join_tables(document[name], table, own)
    _check(document, own)
    return document


def _read_own_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        remedy = f"mend it, or leave out --services and {VARIABLE}"
        raise InputError(f"{path} cannot be read: {error}", remedy) from None


def _join_tables(shipped: dict[str, Any], own: dict[str, Any], path: str) -> dict[str, Any]:
    joined = own | {key: value for key, value in shipped.items() if key not in own}
    for key in (key for key in own if isinstance(shipped.get(key), list)):
        if not isinstance(own[key], list):
            raise InputError(f"in {path}, {key} is no list", f'write {key} = ["…"]')
        joined[key] = [*own[key], *shipped[key]]
    return joined


def _check(document: dict[str, Any], own: str) -> None:
    """Check the properties on which the code relies."""
    texts = [*document["ids"]["headers"], *document["background"]["user_agents"], *document["common"]["targets"]]
    texts += document["processes"]["any"]
    texts += [text for name in ("names", "ports", "usual", "callers", "targets") for text in document[name].values()]
    wrong = [port for name in ("ports", "usual") for port in document[name] if not port.isdecimal()]
    wrong += [name for name in document["names"] if not name.rpartition(":")[2].isdecimal()]
    wrong += [repr(text) for text in texts if not isinstance(text, str)]
    if wrong:
        raise InputError(
            f"{own} has {wrong[0]}", "ports are numbers, servers HOST:PORT, and what they are called are texts"
        )


@cache
def _clues(own: str) -> Mapping[str, Clue]:
    found = {name: _clue(name, fields, own) for name, fields in _merged_document(own)["clues"].items()}
    headers = {clue.header for clue in found.values() if clue.header}
    runs = [run for clue in found.values() for run in clue.begins]
    for what, count in (("headers", len(headers)), ("runs of bytes", len(runs))):
        if count > MOST_OF_A_KIND:
            raise InputError(f"with {own}, clues look for {count} {what}", f"look for at most {MOST_OF_A_KIND}")
    return found


def _clue(name: str, fields: Any, own: str) -> Clue:
    """A clue of a document.

    Raises: `InputError` naming what is wrong in it.
    """
    help_ = 'write such as: thing = { from = "server", header = "server: Thing" }'
    if not isinstance(fields, dict) or fields.get("from") not in ("client", "server"):
        raise InputError(f"{own}: clue {name} does not say who sends it", help_)
    lists = {key: fields.get(key, []) for key in ("methods", "targets", "begins", "bytes")}
    header, protocol = fields.get("header", ""), fields.get("protocol", "")
    strange = fields.keys() - lists.keys() - {"from", "header", "protocol"}
    is_text = (
        isinstance(header, str)
        and isinstance(protocol, str)
        and all(
            isinstance(each, list) and all(isinstance(text, str) and text for text in each) for each in lists.values()
        )
    )
    begins = [*map(_text_bytes, lists["begins"]), *map(_hex_bytes, lists["bytes"])] if is_text else []
    whole = any((begins, header, lists["targets"], lists["methods"], protocol))
    if protocol and is_text and protocol not in _protocols():
        raise InputError(
            f"{own}: clue {name} looks for requests of {protocol}", f"protocols are {', '.join(sorted(_protocols()))}"
        )
    if strange or not is_text or not whole or None in begins or (header and ":" not in header):
        raise InputError(f"{own}: clue {name} cannot be understood", help_)
    key, _, value = header.partition(":")
    return Clue(
        from_client=fields["from"] == "client",
        methods=tuple(lists["methods"]),
        targets=tuple(lists["targets"]),
        header=(key.strip(), value.strip()) if header else None,
        begins=tuple(run for run in begins if run),
        protocol=protocol or None,
    )


@cache
def _protocols() -> frozenset[str]:
    """Those whose requests are read."""
    return frozenset(name for name, _, how, *_ in _core.protocols() if how in ("ordered", "by_stream_id"))


def _text_bytes(text: str) -> tuple[int, ...] | None:
    return tuple(text.encode("latin-1", "replace")) or None


def _hex_bytes(text: str) -> tuple[int, ...] | None:
    """The bytes of `16 03 ??`; None for another format, or if all bytes are wildcards."""
    words = text.split()
    if not all(re.fullmatch(r"[0-9a-fA-F]{2}|[?]{2}", word) for word in words) or set(words) <= {"??"}:
        return None
    return tuple(-1 if word == "??" else int(word, 16) for word in words)


@cache
def _products(own: str) -> tuple[Product, ...]:
    known = _clues(own)
    found = []
    for name, fields in _merged_document(own)["products"].items():
        seen = fields.get("seen") if isinstance(fields, dict) else None
        is_sets = isinstance(seen, list) and bool(seen) and all(isinstance(each, list) and each for each in seen)
        missing = [str(clue) for each in seen for clue in each if clue not in known] if is_sets and seen else []
        least = fields.get("least", LEAST_SHARE) if is_sets else 0
        if not is_sets or missing or not isinstance(least, int | float):
            what = f"names the clue {missing[0]}, which is none" if missing else "cannot be understood"
            raise InputError(f"{own}: product {name} {what}", 'write such as: thing = { seen = [["a-clue"]] }')
        flags = {key: bool(fields.get(key, False)) for key in ("one", "protocol")}
        sets = tuple(tuple(each) for each in seen or ())
        found.append(Product(str(fields.get("name", name)), sets, float(least), beside=fields.get("beside"), **flags))
    return tuple(found)


def _pattern(shape: str) -> str:
    """The pattern of `/v1/{account}/{object}`: later parts may be missing, the last one matches the rest without the
    query."""
    *words, last = shape.strip("/").split("/")
    pattern = f"(?:/(?P<{last[1:-1]}>[^?]+))?"
    for word in reversed(words):
        part = f"(?P<{word[1:-1]}>[^/?]+)" if word.startswith("{") else re.escape(word)
        pattern = f"(?:/{part}{pattern})?" if word.startswith("{") else f"/{part}{pattern}"
    return f"^{pattern}/?(?:[?].*)?$"
