"""A paper's sentence beside what was found here, and the table of them for a terminal."""

import dataclasses
from collections.abc import Sequence

MARKS = {True: "as the paper", False: "differs", None: "not reached"}


@dataclasses.dataclass(frozen=True)
class Statement:
    """A sentence of the document, and whether this sweep confirms it."""

    said: str
    found: str
    agrees: bool | None  # None: the sweep does not reach so far
    why: str = ""  # it differs


def as_text(found: Sequence[Statement]) -> str:
    """The table for a terminal."""
    lines = []
    for each in found:
        lines += [f"{MARKS[each.agrees]:<13} {each.said}", f"{'':<13}   {each.found}"]
        lines += [f"{'':<13}   why: {each.why}"] if each.why else []
    return "\n".join(lines)
