"""Thresholds of findings: each has a unit and a reason; what an operator sets is used and recorded."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from collector import analysis
from collector.analysis import match_stage, pipeline, rebuild_stage
from collector.commands.replay import command
from collector.decode.sources import host_sources
from collector.findings.diagnosis import find
from collector.findings.thresholds import (
    DEFAULTS,
    Declared,
    Thresholds,
    all_thresholds,
    changes_words,
    read_thresholds,
    table_lines,
    thresholds_of,
)
from collector.reporting.html import write_html
from collector.reporting.report import build_report
from collector.requests.exchanges import build_exchanges
from collector.requests.spans import link
from collector.service.app import create_app
from collector.service.settings import CollectorSettings
from collector.trace.model import HostInfo, ThresholdInfo, TraceInfo
from collector.trace.reading import Trace
from testkit.tables import table
from tests.helpers.scripts import play
from tests.helpers.service_ports import names_of_ports
from tracer.errors import InputError

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "thresholds.md"
CAPTURES = ROOT / "captures" / "swift-upload-1B"
EVERY = tuple(all_thresholds())


def test_the_page_has_the_table_of_the_code(regenerate: bool) -> None:
    page, made = PAGE.read_text("utf-8"), "\n".join(table_lines())
    if regenerate:
        before, _, rest = page.partition("| group |")
        page = before + made + "\n" + "".join(re.findall(r"^(?!\|).*\n?", rest.partition("\n")[2], re.MULTILINE))
        PAGE.write_text(page, "utf-8")
    assert "\n\n" + made + "\n" in page, "python -m collector.findings.thresholds prints it; --regenerate writes it"


@pytest.mark.parametrize("each", EVERY, ids=lambda each: f"{each.group}.{each.name}")
def test_a_threshold_has_a_unit_a_possible_default_and_a_reason_and_is_used(each: Declared) -> None:
    _, least, most = each.range
    assert least <= each.default <= most
    assert len(each.reason) > 15
    code = "".join(path.read_text("utf-8") for path in (ROOT / "collector").rglob("*.py"))
    assert re.search(rf"\.{each.name}\b", code), "nothing reads it"


def test_a_file_sets_values_and_leaves_the_others(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text("[pace]\nlate_ratio = 3\n[clocks]\noffset_least_ns = 50_000_000\n")
    thresholds = read_thresholds(tmp_path / "t.toml")
    assert thresholds == replace(
        DEFAULTS,
        pace=replace(DEFAULTS.pace, late_ratio=3.0),
        clocks=replace(DEFAULTS.clocks, offset_least_ns=50_000_000),
    )
    assert isinstance(thresholds.pace.late_ratio, float)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[pase]\nlate_ratio = 3", "there is no group of thresholds [pase]"),
        ("pace = 3", "there is no group of thresholds [pace]"),
        ("[pace]\nlate = 3", "[pace] has no threshold late"),
        ("[pace]\nlate_ratio = 'x'", "pace.late_ratio = 'x' is not a number from 1 to 1,000,000 (ratio)"),
        ("[pace]\nlate_ratio = true", "pace.late_ratio = True is not a number"),
        ("[pace]\nlate_ratio = nan", "pace.late_ratio = nan is not a number"),
        ("[pace]\nlate_ratio = inf", "pace.late_ratio = inf is not a number"),
        ("[pace]\nlate_ratio = 0.5", "pace.late_ratio = 0.5 is not a number from 1"),
        ("[severity]\nlost_least_share = 1.5", "severity.lost_least_share = 1.5 is not a number from 0 to 1"),
        ("[severity]\nlost_least_count = 2.5", "severity.lost_least_count = 2.5 is not a whole number from 1"),
        ("[severity]\nlost_least_count = 0", "severity.lost_least_count = 0 is not a whole number from 1"),
        ("[clocks]\noffset_least_ns = -1", "clocks.offset_least_ns = -1 is not a whole number from 0"),
        ("[pauses]\ndelayed_ack_least_ns = 600_000_000", "delayed_ack_least_ns is more than"),
        ("[pace", "cannot be read"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(text)
    with pytest.raises(InputError, match=re.escape(message)):
        read_thresholds(tmp_path / "t.toml")


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_thresholds(tmp_path / "none.toml")


def test_changes_are_those_of_the_file_and_give_the_thresholds_again() -> None:
    assert DEFAULTS.changes() == ()
    changed = replace(DEFAULTS, pace=replace(DEFAULTS.pace, late_ratio=3.0))
    assert changed.changes() == (ThresholdInfo("pace.late_ratio", 3.0, 2.0),)
    assert thresholds_of(changed.changes()) == changed
    assert thresholds_of([ThresholdInfo("pace.of_another_version", 3.0, 2.0)]) == DEFAULTS
    assert changes_words(changed.changes()) == "judged with pace.late_ratio 3 (default 2)"
    assert changes_words(()) == ""


LOST = """
client:40000 > web:8080
    100 > 0:100 GET /a
    300 < 0:1000 200
    310 < 1000:2000 lost
    520 < 1000:2000 #2
    900 > 100:200 GET /b
   1200 < 2000:2050 200
"""
UNANSWERED = "client:40000 > web:8080\n 0 > 0:100 GET /a\nclient:40001 > web:8080\n 500000 > 0:100 GET /b"


def severities_and_kinds(script: str, thresholds: Thresholds, *clocks: dict[str, object]) -> list[tuple[str, str]]:
    """Severity and kind of each finding of a script of packets."""
    played = play(script)
    built = build_exchanges(played.hops, played.messages, played.connections, names_of_ports({8080: "app"}))
    hosts = tuple(HostInfo(host, (), (), (), 9, 9, 0, 1) for host in ("client", "web"))
    tables = {"hops": built.hops, "connections": played.connections, "exchanges": built.exchanges}
    tables |= {"spans": link(built.exchanges), "clocks": table("clocks", list(clocks))}
    rows = find(tables, TraceInfo(0, "", hosts), thresholds).to_pylist()
    return [(row["severity"], row["kind"]) for row in rows]


def test_a_threshold_of_severity_is_used() -> None:
    assert ("warning", "packet_loss") in severities_and_kinds(LOST, DEFAULTS)
    lenient = replace(DEFAULTS, severity=replace(DEFAULTS.severity, worth_acting_share=1.0))
    assert ("notice", "packet_loss") in severities_and_kinds(LOST, lenient)


def test_a_threshold_of_symptoms_is_used() -> None:
    kinds = [kind for _, kind in severities_and_kinds(UNANSWERED, DEFAULTS)]
    assert "unanswered_request" not in kinds
    strict = replace(DEFAULTS, requests=replace(DEFAULTS.requests, unanswered_least_ns=400_000_000))
    assert "unanswered_request" in [kind for _, kind in severities_and_kinds(UNANSWERED, strict)]


def test_a_threshold_of_a_family_is_used() -> None:
    clock = {"method": "hull", "skew_ppb": 0, "uncertainty_ns": 5, "from_host_ns": 0, "to_host_ns": 9, "from_frame": 1}
    clocks = [clock | {"host": "client", "offset_ns": 0}, clock | {"host": "web", "offset_ns": 2_000_000}]
    assert "clock_offset" not in [kind for _, kind in severities_and_kinds(LOST, DEFAULTS, *clocks)]
    strict = replace(DEFAULTS, clocks=replace(DEFAULTS.clocks, offset_least_ns=1_000_000))
    assert "clock_offset" in [kind for _, kind in severities_and_kinds(LOST, strict, *clocks)]


def test_a_collector_analyses_with_its_thresholds(tmp_path: Path) -> None:
    changed = replace(DEFAULTS, clocks=replace(DEFAULTS.clocks, offset_least_ns=1))
    state = create_app(CollectorSettings(tmp_path, thresholds=changed)).state
    assert state.analysis.args[0].thresholds == changed
    assert state.live._analysis.args[0].thresholds == changed


def test_each_stage_of_an_analysis_is_given_the_thresholds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds = replace(
        DEFAULTS,
        host_drops=replace(DEFAULTS.host_drops, processed_within_ns=7),
        network=replace(DEFAULTS.network, late_least_ns=7),
        pauses=replace(DEFAULTS.pauses, least_ns=7),
    )
    given: dict[str, list[object]] = {"host_drops": [], "hop_counts": [], "collect_symptoms": [], "build_findings": []}

    def watch(owner: object, name: str, position: int, keyword: str) -> None:
        stage = getattr(owner, name)

        def record_call(*arguments: object, **named: object) -> object:
            given[name].append(named[keyword] if keyword in named else arguments[position])
            return stage(*arguments, **named)

        monkeypatch.setattr(owner, name, record_call)

    watch(match_stage, "host_drops", 3, "limits")
    watch(rebuild_stage, "hop_counts", 2, "late_ns")
    watch(rebuild_stage.symptoms, "collect_symptoms", 9, "limits")
    watch(pipeline.diagnosis, "build_findings", 9, "thresholds")
    options = analysis.AnalysisOptions(thresholds=thresholds)
    analysis.analyse(host_sources([str(CAPTURES)]), str(tmp_path / "trace"), options=options)
    expected = {"host_drops": thresholds.host_drops, "hop_counts": 7, "collect_symptoms": thresholds.of_symptoms}
    for name, limits in (expected | {"build_findings": thresholds}).items():
        assert given[name], name
        assert all(each == limits for each in given[name]), name


def test_a_replay_uses_and_records_the_file_and_the_report_names_it(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text("[clocks]\noffset_least_ns = 0\n[pauses]\nleast_ns = 7\n")
    trace = str(tmp_path / "trace")
    done = CliRunner().invoke(command, ["-o", trace, "--thresholds", str(tmp_path / "t.toml"), str(CAPTURES)])
    assert done.exit_code == 0
    assert Trace(trace).info().thresholds == (
        ThresholdInfo("pauses.least_ns", 7, 1_000_000),
        ThresholdInfo("clocks.offset_least_ns", 0, 10_000_000),
    )
    words = "judged with pauses.least_ns 7 (default 1,000,000) and clocks.offset_least_ns 0 (default 10,000,000)"
    assert words in " ".join(done.output.split())
    page = tmp_path / "page.html"
    write_html(build_report(trace), page)
    assert words in page.read_text("utf-8")


def test_a_wrong_file_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text("[pace]\nlate = 3\n")
    trace = tmp_path / "trace"
    done = CliRunner().invoke(command, ["-o", str(trace), "--thresholds", str(tmp_path / "t.toml"), str(CAPTURES)])
    assert isinstance(done.exception, InputError)
    assert not trace.exists()
