"""`tracer report --assert`: what it accepts, what it says, its exit status, and JUnit's XML."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from collector.commands import replay, report
from collector.queries.assertions import parse_assertions
from tracer.errors import InputError

CAPTURES = Path(__file__).resolve().parents[3] / "captures" / "bench-2-puts"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two PUTs of 81 and 32 ms and a GET of 6 ms at a Swift-like cluster."""
    place = str(tmp_path_factory.mktemp("assert") / "trace")
    assert CliRunner().invoke(replay.command, ["--quiet", "-o", place, str(CAPTURES)]).exit_code == 0
    return place


def run(trace: str, *rules: str, more: tuple[str, ...] = ()) -> Result:
    options = [word for rule in rules for word in ("--assert", rule)]
    return CliRunner().invoke(report.command, [trace, *options, *more])


@pytest.mark.parametrize(
    ("rule", "holds", "found"),
    [
        ("max(PUT) < 1s", True, r"\d+\.\d ms of \d requests"),
        ("p50(PUT) > 1s", False, r"ms of \d requests"),
        ("mean <= 10s", True, r"of \d requests"),
        ("p99(PUT status:418) < 1s", False, "there are no such requests"),
        ("requests(PUT) >= 2", True, r"\d of \d requests"),
        ("requests == 0", False, r"\d of \d requests"),
        ("failed(PUT) == 0", True, r"0 of \d requests"),
        ("failed < 1%", True, r"0 %: 0 of \d requests"),
        ("failed(PUT or GET) == 0", True, "0 of 4 requests"),
        ("requests(not (PUT or GET)) == 0", True, "0"),
        ("failed(DELETE) < 1%", False, "there are no such requests"),
        ("abandoned != 0", False, "0 of"),
        ("lost == 0", True, "0 of 375 packets"),
        ("matched >= 100%", True, "100 %: 375 of 375 packets"),
        ("retransmitted > 0.1%", False, "0 %: 0 of 375"),
        ("finding(server_silent) == 0", True, "0"),
        ("findings == 0", True, "0"),
        ("counter(capture_truncated) == 0", True, "0"),
    ],
)
def test_one_assertion(rule: str, holds: bool, found: str, trace: str) -> None:
    result = run(trace, rule)
    assert result.exit_code == (0 if holds else 1)
    last = result.output.splitlines()[-1]
    assert last.startswith(f"  {'holds' if holds else 'fails'}  {rule}: ")
    assert re.search(found, last)


def test_one_that_fails_decides_and_all_are_shown(trace: str, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("# what must hold\nlost == 0; max(PUT) < 1ns\n\nrequests > 0  # there are some\n")
    result = run(trace, f"@{rules}", "findings == 0")
    assert result.exit_code == 1
    said = result.output.rsplit("Assertions\n", 1)[1].splitlines()
    assert [line.split()[0] for line in said] == ["holds", "fails", "holds", "holds"]


def test_junit(trace: str, tmp_path: Path) -> None:
    file = tmp_path / "out.xml"
    result = run(trace, "lost == 0; p99(PUT) < 1ns", more=("--junit", str(file)))
    assert result.exit_code == 1
    suite = ElementTree.parse(file).getroot()
    assert (suite.tag, suite.get("tests"), suite.get("failures")) == ("testsuite", "2", "1")
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == ["lost == 0", "p99(PUT) < 1ns"]
    assert [case.find("failure") is None for case in cases] == [True, False]
    failure = cases[1].find("failure")
    assert failure is not None
    assert (failure.get("message") or "").startswith("p99(PUT) < 1ns: ")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("", "there is no assertion"),
        ("p99 of PUT > 1ms", "it is no comparison"),
        ("p99(PUT) < 50", "p99 is a duration"),
        ("p99(PUT) < fast", "'fast' is no number"),
        ("lost < 5ms", "lost is a count"),
        ("losses == 0", "'losses' is no measure; there are: p99,"),
        ("finding(slow) == 0", "'slow' is no kind of finding"),
        ("counter == 0", "which counter is not said"),
        ("lost(PUT) == 0", "lost is of the whole trace"),
        ("p99(colour:red) < 5ms", "nothing is searched by 'colour'"),
        ("p99(> 5ms) < 5ms", "is no duration"),
        ("requests < 5%", "requests is no share"),
    ],
)
def test_what_is_wrong_is_said(rule: str, words: str) -> None:
    with pytest.raises(InputError) as found:
        parse_assertions(rule)
    assert words in f"{found.value}"


def test_options_that_do_not_fit(trace: str, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for options in (
        ["--junit", str(tmp_path / "x")],
        ["--assert", f"@{tmp_path}/none"],
        ["--assert", f"@{tmp_path}/bytes"],
    ):
        assert isinstance(CliRunner().invoke(report.command, [trace, *options]).exception, InputError)


def test_json_stays_json(trace: str) -> None:
    result = run(trace, "lost == 1", more=("--json",))
    assert result.exit_code == 1
    assert result.output.rstrip().endswith("}")
