"""Reads a search: words joined by `and`, `or`, `not` and parentheses.

    PUT host:db1                both words
    PUT or DELETE               one of them
    not status:ok               what the word does not match
    (lost or >50ms) service:s3  parentheses group; `and` binds closer than `or`, `not` closer than `and`
    "PUT /photos"               spaces within quotes belong to the word; so `"or"` is the word itself
    path:"/a b"

Words that follow each other are joined by `and`. Upper case makes no difference. A parenthesis within a word is a part
of it: only those at its beginning, and those at its end that it has not opened itself, group. A quote that is not
closed ends with the text.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

_TOKEN = re.compile(r'\s*(?P<token>\(|(?P<key>[A-Za-z_0-9]+:)?"(?P<quoted>[^"]*)(?:"|$)|[^\s]+)')
_OPERATORS = ("and", "or", "not")
DEEPEST = 50
"""More parentheses and negations within each other are refused."""


class WordError(ValueError):
    """A search that is wrong. Arguments: the place among its characters, what is wrong there, what to do."""

    def __init__(self, at: int, what: str, remedy: str) -> None:
        super().__init__(what)
        self.at, self.what, self.remedy = at, what, remedy


class Word(Struct, frozen=True):
    """A word and where it begins; `key` before a colon that stood before a quote, else "" (a rule looks for one)."""

    text: str
    at: int
    quoted: bool = False
    key: str = ""

    def __str__(self) -> str:
        return f'{self.key and self.key + ":"}"{self.text}"' if self.quoted else self.text


class Not(Struct, frozen=True):
    """What a part does not match."""

    of: "Part"

    def __str__(self) -> str:
        return f"not {_in_parentheses(self.of)}"


class Joined(Struct, frozen=True):
    """What all parts match; of `either` what one of them does."""

    parts: tuple["Part", ...]
    either: bool = False

    def __str__(self) -> str:
        return (" or " if self.either else " and ").join(map(_in_parentheses, self.parts))


Part = Word | Not | Joined


def _in_parentheses(part: Part) -> str:
    return f"({part})" if isinstance(part, Joined) else str(part)


def parse_search(text: str) -> Part:
    """The search of a text. Raises: WordError if it has no word, or a parenthesis or an operator stands alone."""
    tokens = list(_tokens(text))
    reader = _Reader(tokens, len(text))
    part = reader.either(0)
    if reader.next is not None:
        raise WordError(reader.next.at, "nothing is open that ')' closes", "leave it out")
    return part


def words_of(part: Part) -> Iterator[Word]:
    """The words of a search, in their order."""
    if isinstance(part, Word):
        yield part
    else:
        for each in (part.of,) if isinstance(part, Not) else part.parts:
            yield from words_of(each)


class _Reader:
    """The tokens of a search and how many of them are read."""

    def __init__(self, tokens: list[Word], end: int) -> None:
        self._tokens, self._end, self._read = tokens, end, 0

    @property
    def next(self) -> Word | None:
        """The token after those that are read."""
        return self._tokens[self._read] if self._read < len(self._tokens) else None

    def either(self, depth: int) -> Part:
        """Parts between which `or` stands."""
        parts = [self._all(depth)]
        while self._takes("or"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else Joined(tuple(parts), either=True)

    def _all(self, depth: int) -> Part:
        parts = [self._one(depth)]
        while self._takes("and") or not (self.next is None or _is(self.next, "or") or _is(self.next, ")")):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else Joined(tuple(parts))

    def _one(self, depth: int) -> Part:
        at = self._end if self.next is None else self.next.at
        if depth > DEEPEST:
            raise WordError(at, f"more than {DEEPEST} parentheses are open", "write it simpler")
        if self._takes("not"):
            return Not(self._one(depth + 1))
        if self._takes("("):
            part = self.either(depth + 1)
            if not self._takes(")"):
                raise WordError(at, "this parenthesis is not closed", "add ')'")
            return part
        word = self.next
        if word is None:
            raise WordError(at, "a word is missing", "say what is to be found")
        if any(_is(word, each) for each in (*_OPERATORS, ")")):
            raise WordError(at, "a word is missing", f'{word.text} as text is written in quotes: "{word.text}"')
        self._read += 1
        return word

    def _takes(self, operator: str) -> bool:
        """Whether the next token is this operator, which then is read."""
        found = self.next is not None and _is(self.next, operator)
        self._read += found
        return found


def _is(token: Word, operator: str) -> bool:
    return not token.quoted and token.text.lower() == operator


def _tokens(text: str) -> Iterator[Word]:
    at = 0
    while found := _TOKEN.match(text, at):
        token, begin = found["token"], found.start("token")
        if found["quoted"] is not None:
            yield Word(found["quoted"], begin, quoted=True, key=(found["key"] or "")[:-1].lower())
            at = found.end()
            continue
        closing = 0
        while token.endswith(")") and token.count(")") > token.count("("):
            token, closing = token[:-1], closing + 1
        if token:
            yield Word(token, begin)
        for place in range(closing):
            yield Word(")", begin + len(token) + place)
        at = found.end()
