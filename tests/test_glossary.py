"""docs/glossary.md rules: columns, parts of the ledger, kinds of findings and keys of reports use its words."""

import dataclasses
import re
import typing
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from collector.findings.kinds import FAMILIES, KINDS, OF_NAME, table_lines
from collector.reporting.report import Report
from collector.requests.spans import LEDGER_COLUMNS
from collector.trace.schema import TABLES

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text("utf-8")
DIAGNOSIS = ROOT / "docs" / "diagnosis.md"
IN_CODE_MARKS = re.compile(r"`([a-z0-9_]+)`")
COLUMNS = {column for schema in TABLES.values() for column in schema.names}


def rows(text: str) -> Iterator[list[str]]:
    """Cells of each row of the tables of a page, without heads and rules."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("| `"):
            yield cells


def headwords() -> set[str]:
    """Single words: of the first column of all tables, and of the last section's lists."""
    listed = GLOSSARY.split("## Plain words in names", 1)[1]
    names = [name for row in rows(GLOSSARY) for name in IN_CODE_MARKS.findall(row[0])]
    return {word for name in (*names, *IN_CODE_MARKS.findall(listed)) for word in name.split("_")}


def rivals() -> set[str]:
    """Words of the columns "not", but for those that are allowed somewhere, which a bracket says."""
    cells = [row[2].rstrip(" |") for row in rows(GLOSSARY) if len(row) > 2]
    words = {word.strip() for cell in cells for word in re.sub(r"\w+ \([^)]*\)", "", cell).split(",")}
    return {word for word in words if word} - headwords()


def kinds() -> set[str]:
    """Of findings, as docs/diagnosis.md lists them."""
    listed = DIAGNOSIS.read_text("utf-8").split("## Kinds", 1)[1].split("\n## ", 1)[0]
    return {
        kind for row in re.findall(r"^\|[^|]*\|([^|]*)\|", listed, re.MULTILINE) for kind in IN_CODE_MARKS.findall(row)
    }


def keys(kind: object) -> set[str]:
    """Of the JSON that is made of this type, with those of the types in it."""
    found = set().union(*map(keys, typing.get_args(kind)))
    if isinstance(kind, type) and (issubclass(kind, Struct) or dataclasses.is_dataclass(kind)):
        fields = typing.get_type_hints(kind)
        found |= set(fields).union(*map(keys, fields.values()))
    return found


def missing(names: set[str]) -> dict[str, str]:
    """Words that the glossary lacks, plural `s` of counts aside, each with a name that has it."""
    known = headwords()
    return {
        word: name for name in sorted(names) for word in name.split("_") if word not in known and word[:-1] not in known
    }


def test_each_word_of_a_column_is_in_the_glossary() -> None:
    assert missing(COLUMNS) == {}


def test_each_word_of_a_reports_keys_is_in_the_glossary() -> None:
    assert {"cost_ns", "coverage", "p_value"} <= keys(Report)
    assert missing(keys(Report)) == {}


def test_the_ledger_s_parts_are_those_of_the_glossary_in_their_order() -> None:
    listed = GLOSSARY.split("| part | meaning |", 1)[1].split("\n\n", 1)[0]
    assert tuple(row[0].strip("`") for row in rows(listed)) == LEDGER_COLUMNS


def test_no_name_is_made_of_a_rival_word() -> None:
    assert {"latency", "score", "hint"} <= rivals()
    names = COLUMNS | set(LEDGER_COLUMNS) | kinds() | keys(Report)
    assert {name for name in names if rivals() & set(name.split("_"))} == set()


def test_the_table_of_kinds_is_that_of_the_code(regenerate: bool) -> None:
    page, made = DIAGNOSIS.read_text("utf-8"), "\n".join(table_lines())
    if regenerate:
        before, head, rest = page.partition("| family | kind |")
        page = before + made + "\n\n" + (head + rest).partition("\n\n")[2]
        DIAGNOSIS.write_text(page, "utf-8")
    missing = "python -m collector.findings.kinds prints it; this test with --regenerate writes it"
    assert "\n\n" + made + "\n\n" in page, missing


def test_each_kind_that_is_found_or_caused_is_registered() -> None:
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "collector" / "findings").glob("*.py"))
    named = set(re.findall(r'kind="([a-z_]+)"', code)) - {"stable"}
    assert len(named) > 15
    caused = {name for kind in KINDS for name in kind.can_cause}
    assert named | caused <= set(OF_NAME)
    assert {kind.family for kind in KINDS} == set(FAMILIES)
    assert len(OF_NAME) == len(KINDS)
