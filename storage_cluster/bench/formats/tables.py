"""Tables of JSON and TOML read key by key: what is left over, or of the wrong kind, is an error with its line."""

import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.formats.xml import MEND

T = TypeVar("T")
_OPENING = "\"'[{"
_KINDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number", list: "a list", dict: "a table"}


class Table:
    """One table of a file."""

    def __init__(self, file: str, text: str, path: str, values: dict[str, Any]) -> None:
        self._file = file
        self._text = text
        self._path = path
        self._values = values
        self._known: list[str] = []

    def fail(self, what: str, key: str = "") -> NoReturn:
        """Say what is wrong here. Raises: WorkloadError."""
        path = ".".join(part for part in (self._path, key) if part)
        raise WorkloadError(f"{self._file}{self._line(key)}: {path or 'the file'}: {what}", MEND)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def take(self, key: str, kind: type[T], default: T | None = None) -> T:
        """A value. Raises: WorkloadError if it is missing without a default, or of another kind."""
        self._known.append(key)
        if key not in self._values:
            if default is None:
                self.fail("is missing", key)
            return default
        value = self._values[key]
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            self.fail(f"{value!r} is not {_KINDS[kind]}", key)
        return cast(T, value)

    def take_text(self, key: str) -> str:
        """A text, a number or a truth as text; "" if it is missing."""
        value = self._values.get(key, "")
        self._known.append(key)
        if type(value) not in (str, int, bool):
            self.fail(f"{value!r} is not text, a whole number, true or false", key)
        return str(value).lower() if isinstance(value, bool) else str(value)

    @property
    def file(self) -> str:
        """The name of the file."""
        return self._file

    def number(self, key: str, default: int | None = None, *, least: int = 0) -> int:
        """A whole number that is not too small."""
        value = self.take(key, int, default)
        if value < least:
            self.fail(f"{value} is less than {least}", key)
        return value

    def take_parsed(self, key: str, parse: Callable[[str], T], default: T | None = None) -> T:
        """A text as what it means."""
        if key not in self._values and default is not None:
            self._known.append(key)
            return default
        try:
            return parse(self.take(key, str))
        except ValueError as error:
            self.fail(str(error), key)

    def table(self, key: str, *, optional: bool = False) -> "Table":
        """A table within."""
        return Table(self._file, self._text, self._inner(key), self.take(key, dict, {} if optional else None))

    def tables(self, key: str, *, optional: bool = False) -> "list[Table]":
        """A list of tables within."""
        found = self.take(key, list, [] if optional else None)
        for value in found:
            if not isinstance(value, dict):
                self.fail(f"{value!r} is not a table", key)
        return [Table(self._file, self._text, f"{self._inner(key)}[{n}]", value) for n, value in enumerate(found, 1)]

    def rest(self) -> dict[str, Any]:
        """All values that were not read yet."""
        left = {key: value for key, value in self._values.items() if key not in self._known}
        self._known += left
        return left

    def finish(self) -> None:
        """Refuse what nobody took. Raises: WorkloadError."""
        for key in self._values:
            if key not in self._known:
                self.fail(f"unknown; known are {', '.join(self._known)}", key)

    def _inner(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def _line(self, key: str) -> str:
        """The line of a key: of several with that name the first whose value is this one's, if it can be found."""
        if not key or key not in self._values:
            return ""
        found = list(re.finditer(rf'(?<![\w-])"?{re.escape(key)}"?\s*[=:]', self._text))
        value = str(self._values[key]).lstrip(_OPENING)
        exact = [
            match for match in found if self._text[match.end() :].lstrip(" \t\n" + _OPENING).startswith(value[:20])
        ]
        for match in exact or found:
            return f" line {self._text.count(chr(10), 0, match.start()) + 1}"
        return ""
