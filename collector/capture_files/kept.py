"""Reads what an agent states of what it kept: the comments of its segments about its budget (`tracer.cpu_budget`).

    twintap.kept since=NS connections=1/4 head_bytes=512     from that time on, by the host's clock
    twintap.left_out packets=N shortened=N                   in the segment that ends here

A segment of an agent with a budget begins with the first, and each change is stated where it comes. A capture is input
like any other: what is no statement is left out.
Source: `tracer/core/capture/src/sampling.rs`.
"""

import re
from collections.abc import Iterable

from msgspec import Struct, field

_KEPT = re.compile(r"twintap\.kept since=(\d{1,19}) connections=1/(1|2|4|8|16|32|64)(?: head_bytes=(\d{1,9}))?")
_LEFT_OUT = re.compile(r"twintap\.left_out packets=(\d{1,18}) shortened=(\d{1,18})")


class Keeping(Struct, frozen=True):
    """What an agent keeps from a time on: one connection in 2^`depth`, and of heads at most `head_bytes`."""

    since_ns: int  # by its host's clock
    depth: int = 0
    head_bytes: int | None = None  # None: whole heads


class Kept(Struct):
    """What the agents of one host kept. `changes`: in their order, none equal to the one before."""

    changes: list[Keeping] = field(default_factory=list)
    left_out_count: int = 0
    """Packets of connections that were not kept."""
    shortened_count: int = 0
    """Packets whose heads were kept in part."""

    @property
    def most_depth(self) -> int:
        """The largest depth at any time; 0 if all connections were kept all the time."""
        return max((each.depth for each in self.changes), default=0)

    def add(self, comments: Iterable[str], first_ns: int | None) -> None:
        """Add the statements of a file. Arguments: `first_ns`, its first stamp; a file without statements is whole."""
        stated = False
        for comment in comments:
            if found := _KEPT.fullmatch(comment):
                stated = True
                heads = None if found[3] is None else int(found[3])
                self._change(Keeping(int(found[1]), int(found[2]).bit_length() - 1, heads))
            elif found := _LEFT_OUT.fullmatch(comment):
                self.left_out_count += int(found[1])
                self.shortened_count += int(found[2])
        if not stated and self.changes and first_ns is not None:
            self._change(Keeping(first_ns))

    def _change(self, next_one: Keeping) -> None:
        last = self.changes[-1] if self.changes else None
        if last is None or (last.depth, last.head_bytes) != (next_one.depth, next_one.head_bytes):
            self.changes.append(next_one)
