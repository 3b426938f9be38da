"""COSBench's `config` attribute: `key=value;key=value`, of which nothing may be unknown.

Keys are matched without regard to case, because COSBench's own samples write `hashcheck` where its code says
`hashCheck`. What a level says holds for those below it until one of them says otherwise.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from storage_cluster.bench.formats.xml import Element

T = TypeVar("T")
Options = dict[str, str]
"""Keys as they are documented."""


def parse_options(element: Element, known: tuple[str, ...], inherited: Mapping[str, str] | None = None) -> Options:
    """The options of an element's `config`, upon those inherited. Raises: WorkloadError."""
    names = {name.lower(): name for name in known}
    found = {name: value for name, value in (inherited or {}).items() if name in known}
    for entry in element.get("config").split(";"):
        if not entry.strip():
            continue
        key, equals, value = (part.strip() for part in entry.partition("="))
        if not equals:
            element.fail(f"{entry.strip()!r} is not key=value", "config")
        if key.lower() not in names:
            element.fail(f"key {key!r} is unknown; known are {', '.join(known) or 'none'}", "config")
        found[names[key.lower()]] = value
    return found


def convert(element: Element, options: Options, key: str, parse: Callable[[str], T], default: T) -> T:
    """An option's value as what it means. Raises: WorkloadError."""
    if key not in options:
        return default
    try:
        return parse(options[key])
    except ValueError as error:
        element.fail(f"key {key}: {error}", "config")


def boolean(text: str) -> bool:
    """`true` or `false`. Raises: ValueError."""
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def one_of(*allowed: str) -> Callable[[str], str]:
    """A parser that takes nothing else."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"{text!r} is none of {', '.join(allowed)}")
        return text

    return parse
