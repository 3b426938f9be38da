"""Parses a page's address, which holds the page's whole state and never names a file."""

from collections.abc import Sequence
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode

from msgspec import Struct

LARGEST_NUMBER = 1 << 53
LONGEST_TEXT = 4_000
"""Of a parameter: a query in SQL may be long."""
Choice = TypeVar("Choice", bound=str)


class Address(Struct, frozen=True):
    """A path and its parameters, each at most once."""

    path: str
    values: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, path: str, search: str) -> "Address":
        """From the two parts of a URL as the browser gives them."""
        given = parse_qsl(search.removeprefix("?"), max_num_fields=None)[:40]
        return cls(path, tuple(sorted({name: value[:LONGEST_TEXT] for name, value in given}.items())))

    def text(self, name: str) -> str:
        """A parameter as it is; "" if it is not given."""
        return dict(self.values).get(name, "")

    def whole(self, name: str) -> int | None:
        """A parameter as a whole number from 0 on; None if it is none."""
        text = self.text(name)
        return (
            int(text)
            if text.isascii() and text.isdecimal() and len(text) <= 16 and int(text) <= LARGEST_NUMBER
            else None
        )

    def one_of(self, name: str, choices: Sequence[Choice]) -> Choice:
        """A parameter that is one of these; the first if it is not."""
        text = self.text(name)
        return next((choice for choice in choices if choice == text), choices[0])

    def link(self, **changes: str | int | None) -> str:
        """This address with other values; None takes one away."""
        return link(self.path, **{**dict(self.values), **changes})


def link(path: str, **values: str | int | None) -> str:
    """An address on this server."""
    given = {name: value for name, value in values.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def request_link(number: int) -> str:
    """Where the timeline shows a request; people count from 1."""
    return f"/#request={number + 1}"
