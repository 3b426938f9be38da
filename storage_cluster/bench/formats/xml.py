"""XML with the line of every element and attribute, so that an error can point at it."""

import dataclasses
import re
from typing import NoReturn
from xml.parsers import expat

from storage_cluster.bench.errors import WorkloadError

MEND = "mend the file"


@dataclasses.dataclass
class Element:
    """An element, and where it and its attributes stand."""

    file: str
    tag: str
    line: int
    attributes: dict[str, str]
    attribute_lines: dict[str, int]
    children: "list[Element]" = dataclasses.field(default_factory=list)

    def get(self, name: str, default: str = "") -> str:
        """An attribute's value."""
        return self.attributes.get(name, default)

    def where(self, attribute: str = "") -> str:
        """The place, as an error names it."""
        line = self.attribute_lines.get(attribute, self.line)
        return f"{self.file} line {line}: " + (
            f"attribute {attribute} of <{self.tag}>" if attribute else f"<{self.tag}>"
        )

    def fail(self, what: str, attribute: str = "") -> NoReturn:
        """Say what is wrong here. Raises: WorkloadError."""
        raise WorkloadError(f"{self.where(attribute)}: {what}", MEND)

    def allow(self, attributes: tuple[str, ...], children: tuple[str, ...] = ()) -> None:
        """Refuse what is not known. Raises: WorkloadError."""
        for name in self.attributes:
            if name not in attributes:
                self.fail(f"unknown; known are {', '.join(attributes)}", name)
        for child in self.children:
            if child.tag not in children:
                inside = f"known are {', '.join(children)}" if children else "nothing may stand there"
                child.fail(f"unknown within <{self.tag}>; {inside}")

    def all(self, tag: str) -> "list[Element]":
        """Children of that name."""
        return [child for child in self.children if child.tag == tag]

    def one(self, tag: str) -> "Element | None":
        """The child of that name, if there is one. Raises: WorkloadError if there are more."""
        found = self.all(tag)
        if len(found) > 1:
            found[1].fail(f"a second one within <{self.tag}>")
        return found[0] if found else None


def parse(text: bytes, file: str) -> Element:
    """The root of a document. Raises: WorkloadError."""
    return _Builder(text, file).build()


class _Builder:
    def __init__(self, text: bytes, file: str) -> None:
        self._text = text
        self._file = file
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.CharacterDataHandler = self._characters
        self._open: list[Element] = []
        self._root: Element | None = None

    def build(self) -> Element:
        try:
            self._parser.Parse(self._text, True)
        except expat.ExpatError as error:
            reason = expat.errors.messages.get(error.code, "not well-formed")
            hint = "write < in an attribute as &lt;" if b"=<" in self._text else MEND
            raise WorkloadError(f"{self._file} line {error.lineno}: not XML ({reason})", hint) from None
        assert self._root is not None
        return self._root

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        line = self._parser.CurrentLineNumber
        made = Element(self._file, tag, line, attributes, self._attribute_lines(attributes, line))
        if self._open:
            self._open[-1].children.append(made)
        else:
            self._root = made
        self._open.append(made)

    def _attribute_lines(self, attributes: dict[str, str], line: int) -> dict[str, int]:
        """A tag may extend over several lines; expat gives only its beginning."""
        begin = self._parser.CurrentByteIndex
        found = {}
        for name in attributes:
            match = re.compile(rb"\s" + re.escape(name.encode()) + rb"\s*=").search(self._text, begin)
            found[name] = line + self._text.count(b"\n", begin, match.start() + 1) if match else line
        return found

    def _end(self, tag: str) -> None:
        self._open.pop()

    def _characters(self, data: str) -> None:
        if data.strip():
            line = self._parser.CurrentLineNumber
            raise WorkloadError(f"{self._file} line {line}: text {data.strip()[:40]!r} outside of a tag", MEND)

    def _doctype(self, *_: object) -> None:
        line = self._parser.CurrentLineNumber
        raise WorkloadError(f"{self._file} line {line}: document types are not read", "remove <!DOCTYPE …>")
