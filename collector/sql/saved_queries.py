"""Queries with names: those that come with the product, and a user's own.

A query is a file `NAME.sql`; its first line is a comment that says what it answers.
"""

import os
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from tracer.errors import InputError, ResourceError

SUFFIX = ".sql"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def own_folder() -> Path:
    """The folder of the user's own queries."""
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "twintap" / "queries"


def saved_queries() -> Mapping[str, str]:
    """All queries by name; the user's own instead of one of the same name that comes with the product."""
    found = {
        each.name.removesuffix(SUFFIX): each.read_text(encoding="utf-8")
        for each in resources.files("collector.sql").joinpath("saved").iterdir()
        if each.name.endswith(SUFFIX)
    }
    for file in sorted(own_folder().glob(f"*{SUFFIX}")):
        found[file.stem] = _content(file)
    return dict(sorted(found.items()))


def query_of(words: str) -> str:
    """The SQL that `words` means: itself, or after an `@` the saved query or the file of that name.

    Raises: `InputError` for a name that is neither.
    """
    if not words.startswith("@"):
        return words
    name = words[1:]
    if name.endswith(SUFFIX):
        return _content(Path(name))
    known = saved_queries()
    if name not in known:
        raise InputError(f"there is no saved query {name}", f"there are: {', '.join(known)}; or give @FILE{SUFFIX}")
    return known[name]


def keep_query(name: str, query: str) -> Path:
    """Save a query under a name; returns its file. Raises: `InputError` for a name that is none, `ResourceError`."""
    if not _NAME.fullmatch(name):
        raise InputError(f"{name} cannot be the name of a query", "use small letters, digits, - and _")
    place = own_folder() / f"{name}{SUFFIX}"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(query.rstrip() + "\n", encoding="utf-8")
    except OSError as error:
        raise ResourceError(f"{place}: cannot be written ({error.strerror})", "set XDG_CONFIG_HOME") from None
    return place


def answers(query: str) -> str:
    """What a query answers, as its first line says; its beginning if that is no comment."""
    first = query.strip().partition("\n")[0]
    return first.removeprefix("--").strip()


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InputError(f"{file}: the query cannot be read ({reason})", "give a file with one SELECT") from None
