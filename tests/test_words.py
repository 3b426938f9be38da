"""Functions are named for what they return or do, and texts name the act: CONTRIBUTING.md, "Rules" and "Commits".

Read are the sources as texts, so that all of Python, Rust and JavaScript takes a second.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("benchmarks", "captures", "collector", "docs", "fuzz", "scripts", "storage_cluster", "testkit", "tests")
FOLDERS += ("tracer", "twintap", "viewer")
MADE = {"__pycache__", "_agent", "corpus", "node_modules", "target"}
"""Folders of what is built, and of bytes that no one wrote."""
TEXTS = {"", ".css", ".js", ".md", ".py", ".pyi", ".rs", ".toml"}
VENDORED = ".min.js"

_IRREGULAR = """
    arisen beaten begun bent bitten blown borne born bought broken brought built burnt caught chosen dealt
    done drawn driven drunk eaten fallen fed felt forbidden forgotten fought found frozen given gone grown heard held
    hidden hung kept known laid learnt led left lent lit lost made meant mistaken overridden overtaken overwritten paid
    proven rebuilt ridden risen rewritten said seen sent shaken shown slept sold sought spent spoilt spoken stolen stood
    stricken struck swept sworn taken taught thought thrown torn undone understood unknown unread unseen withdrawn
    won worn woven written wrung
"""
IRREGULAR = frozenset(_IRREGULAR.split())
"""Participles that do not end in -ed, but for those that are verbs or nouns as well (`cut`, `read`, `set`, `split`)."""

_NO_PARTICIPLES = "bed bleed breed embed exceed feed need proceed red seed shed shred speed succeed weed"
NO_PARTICIPLES = frozenset(_NO_PARTICIPLES.split())
"""Nouns and verbs that end in -ed."""

SIX_ACTS = re.compile(r"(?<![A-Za-z])t(?:ell(?:s|ing)?|old)(?![A-Za-z])", re.IGNORECASE)
"""The verb that once stood for six acts: say report, infer, detect, distinguish, show or notify."""

PYTHON = re.compile(r"((?:^[ \t]*@.*\n)*)^[ \t]*(?:async )?def (\w+)", re.MULTILINE)
RUST = re.compile(r"^[^/\n]*\bfn (\w+)", re.MULTILINE)
JAVASCRIPT = re.compile(
    r"\bfunction\s*\*?\s*(\w+)"
    r"|\b(?:const|let) (\w+) = (?:async )?(?:\([^()]*\)|\w+) =>"
    r"|^[ \t]+(?:static |async |get )*(\w+)\([^()\n]*\) \{$",
    re.MULTILINE,
)
RUST_TYPE = re.compile(r"^[^/\n]*\b(?:struct|enum|trait|type) ([A-Z][a-z0-9]*)\b(?![A-Z_])", re.MULTILINE)
"""A type of one word: all types are nouns, so none of them is a participle either."""
VALUES = re.compile(r"@(?:\w+\.)*(?:property|cached_property|fixture)\b|@\w+\.setter\b")
"""Decorators of what is used as a value: properties may be adjectives, fixtures too."""


def functions(suffix: str, source: str) -> Iterator[str]:
    """The names of functions and methods in a source, properties and fixtures left out."""
    if suffix in (".py", ".pyi"):
        yield from (name for decorators, name in PYTHON.findall(source) if not VALUES.search(decorators))
    elif suffix == ".rs":
        yield from RUST.findall(source)
    elif suffix == ".js":
        yield from ("".join(names) for names in JAVASCRIPT.findall(source))


def is_participle(name: str) -> bool:
    """Whether a name, underscores at its ends aside, is one word that is a participle."""
    word = name.strip("_")
    return word in IRREGULAR or (re.fullmatch(r"[a-z]+ed", word) is not None and word not in NO_PARTICIPLES)


def texts() -> dict[str, str]:
    """{path: text} of every source and document."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in TEXTS]
    files += [path for path in ROOT.iterdir() if path.suffix in TEXTS and not path.name.startswith(".")]
    return {
        str(path.relative_to(ROOT)): path.read_text("utf-8")
        for path in files
        if path.is_file() and not path.name.endswith(VENDORED) and not MADE & set(path.relative_to(ROOT).parts)
    }


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return texts()


def test_the_sources_are_read(sources: dict[str, str]) -> None:
    counts = {
        suffix: len([path for path in sources if path.endswith(suffix)]) for suffix in (".py", ".rs", ".js", ".md")
    }
    assert min(counts.values()) > 20, counts
    names = {suffix: [] for suffix in counts}
    for path, source in sources.items():
        names.setdefault(Path(path).suffix, []).extend(functions(Path(path).suffix, source))
    assert all(len(names[suffix]) > 200 for suffix in (".py", ".rs", ".js")), {key: len(names[key]) for key in names}


def test_no_function_is_named_by_one_bare_participle(sources: dict[str, str]) -> None:
    found = [
        f"{path}: {name}"
        for path, source in sources.items()
        for name in functions(Path(path).suffix, source)
        if is_participle(name)
    ]
    assert found == [], "name them for what they return or do"


def test_no_rust_type_is_named_by_one_bare_participle(sources: dict[str, str]) -> None:
    names = [
        (path, name) for path, source in sources.items() if path.endswith(".rs") for name in RUST_TYPE.findall(source)
    ]
    assert len(names) > 150
    found = [f"{path}: {name}" for path, name in names if is_participle(name.lower())]
    assert found == [], "name them by the thing that they are"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("pub struct Held {\n", ["Held"]),
        ("    type Sent<'a> = (i64, &'a [u8]);\n", ["Sent"]),
        ("enum MatchedHops {\n// struct Taken\n", []),
        ("pub(crate) trait Keyed: Copy {\npub struct Packet(u32);\n", ["Keyed"]),
    ],
)
def test_the_rule_of_types_itself(source: str, expected: list[str]) -> None:
    assert [name for name in RUST_TYPE.findall(source) if is_participle(name.lower())] == expected


@pytest.mark.parametrize(
    ("suffix", "source", "expected"),
    [
        (".py", "def taken(rows):\n    pass\n", ["taken"]),
        (".py", "class A:\n    async def _matched(self) -> None: ...\n", ["_matched"]),
        (".py", "@property\ndef closed(self):\n    pass\n", []),
        (".py", "@pytest.fixture(scope='module')\ndef replayed(tmp_path):\n    pass\n", []),
        (".py", "@cache\ndef found(self):\n    pass\n", ["found"]),
        (".py", "def take_rows(): ...\ndef feed(): ...\ndef split(): ...\ndef is_matched(): ...\n", []),
        (".rs", "    pub(crate) fn sorted_(&self) -> Rows {\n", ["sorted_"]),
        (".rs", "fn sort(&mut self) {\n// fn held(\n", []),
        (".js", "export function drawn(lane) {\n", ["drawn"]),
        (".js", "const kept = (arrow) => arrow.kept;\nconst speed = 3;\n", ["kept"]),
        (".js", "  touched(event) {\n    if (event) {\n", ["touched"]),
    ],
)
def test_the_rule_of_names_itself(suffix: str, source: str, expected: list[str]) -> None:
    assert [name for name in functions(suffix, source) if is_participle(name)] == expected


def test_no_text_uses_the_verb_that_stood_for_six_acts(sources: dict[str, str]) -> None:
    found = [
        f"{path}:{number}: {line.strip()[:100]}"
        for path, text in sources.items()
        if SIX_ACTS.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if SIX_ACTS.search(line)
    ]
    assert found == [], "say report, infer, detect, distinguish, show or notify"


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("as {} by the log".format("to" + "ld"), True),
        ("{}s which".format("Te" + "ll"), True),
        ("is_{}".format("to" + "ld"), True),
        ("satellite, intelligent, stolid", False),
    ],
)
def test_the_rule_of_the_verb_itself(text: str, is_found: bool) -> None:
    assert bool(SIX_ACTS.search(text)) is is_found


def test_the_form_of_commit_subjects_is_documented() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("## Commits", 1)[1]
    assert re.search(r"`area: what changes`, at most 72 characters", page)
    (example,) = re.findall(r"as in\s+`([^`]+)`", page)
    assert re.fullmatch(r"[a-z_]+: \S.*", example)
    assert len(example) <= 72
