"""`tracer report --assert`: a gate for CI, with an exit status and JUnit's XML."""

import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import click

from collector.queries.assertions import Assertion, Verdict, evaluate, parse_assertions
from collector.queries.trace_view import open_trace
from tracer.errors import InputError, ResourceError
from tracer.plain_text import plain


def read_assertions(rules: Sequence[str]) -> list[Assertion]:
    """The assertions of options: texts, or the contents of `@FILE`. Raises: InputError."""
    found: list[Assertion] = []
    for rule in rules:
        found += parse_assertions(_content(rule[1:]) if rule.startswith("@") else rule)
    return found


def _content(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InputError(
            f"{file}: assertions cannot be read ({reason})", "give a file with an assertion a line"
        ) from None


def show_verdicts(trace: str, assertions: Sequence[Assertion], junit: Path | None, *, quiet: bool) -> bool:
    """Evaluate assertions, print a line for each (unless `quiet`), and write them as JUnit's XML; whether all hold.

    Raises: InputError, ResourceError.
    """
    started = time.perf_counter()
    view = open_trace(trace)
    verdicts = [evaluate(each, view) for each in assertions]
    if not quiet:
        click.echo("\nAssertions")
        for verdict in verdicts:
            word = click.style("holds", fg="green") if verdict.holds else click.style("fails", fg="red", bold=True)
            click.echo(f"  {word}  {plain(verdict.assertion.text)}: {verdict.found}")
    if junit is not None:
        _write_junit(junit, trace, verdicts, time.perf_counter() - started)
    return all(verdict.holds for verdict in verdicts)


def _write_junit(file: Path, trace: str, verdicts: Sequence[Verdict], seconds: float) -> None:
    failed_count = sum(not verdict.holds for verdict in verdicts)
    counts = {"tests": str(len(verdicts)), "failures": str(failed_count), "errors": "0", "time": f"{seconds:.3f}"}
    suite = ElementTree.Element("testsuite", {"name": "twintap", **counts})
    for verdict in verdicts:
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": plain(Path(trace).name), "name": plain(verdict.assertion.text)}
        )
        said = f"{plain(verdict.assertion.text)}: {verdict.found}"
        if not verdict.holds:
            ElementTree.SubElement(case, "failure", {"message": said}).text = said
        else:
            ElementTree.SubElement(case, "system-out").text = said
    try:
        ElementTree.ElementTree(suite).write(file, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise ResourceError(f"{file}: cannot be written ({error.strerror})", "write it elsewhere") from None
