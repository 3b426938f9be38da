"""Who owns the ends of a connection, in words."""

from collections.abc import Mapping
from typing import Any

SIDES = ("client", "server")
FIELDS = ("process", "pid", "user", "unit", "container", "pod", "owner_evidence")
COLUMNS = tuple(f"{side}_{name}" for side in SIDES for name in FIELDS)
SCOPES = (".scope", ".slice")
"""Ends of units in which a user's session runs, or containers: they say nothing of a program."""
LISTENS = "it listens at the port"
"""Behind an owner whose connection's own socket was not seen in its hands."""


def owner_group(owner: Mapping[str, Any]) -> str:
    """What processes that are shown together go by: their name and, where it says something else, where they run.

    Arguments: the fields of one end, without its side; "" or None for what is not known.
    """
    unit = (owner["unit"] or "").removesuffix(".service")
    place = owner["pod"] or owner["container"] or ("" if unit.endswith(SCOPES) else unit)
    process = owner["process"] or ""
    if process:
        return f"{process} ({place})" if place not in ("", process) else process
    return place or (f"user {owner['user']}" if owner["user"] else "")


def owner_words(row: Mapping[str, Any], side: str) -> str:
    """The owner of one end of a row of `connections` with `COLUMNS`; "" if none is known."""
    process, pid, user, unit, container, pod, evidence = (row[f"{side}_{name}"] for name in FIELDS)
    if evidence is None:
        return ""
    parts = [f"pid {pid}"] if pid is not None else []
    parts += [f"user {user}"] if user else []
    parts += [unit] if unit else []
    parts += [f"container {container}"] if container else []
    parts += [f"pod {pod}"] if pod else []
    parts += [LISTENS] if evidence == "listener" else []
    name = process or "process not known"
    return f"{name} ({', '.join(parts)})" if parts else name
