"""What the report says, as it is printed, as JSON and as a page."""

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from msgspec import to_builtins
from msgspec.structs import replace
from rich.console import Console

from collector.commands.report import command
from collector.reporting.console import WIDTH
from collector.reporting.html import make_html
from collector.reporting.report import build_report
from collector.reporting.text import show
from collector.trace.model import CommandInfo, CounterInfo
from collector.trace.reading import Trace
from testkit.tables import BASE_NS
from tests.helpers.script_traces import write_script_trace

GOLDEN = Path(__file__).parents[2] / "golden" / "report"
UPLOAD = """
    client:40000 > proxy:8080
      100000 > syn
      100050 < syn_ack
      100100 > ack
      100200 > 0:200 PUT /v1/AUTH_test/c/o tx=tx1
      104000 < 0:100 201 tx=tx1
      104100 > fin
    proxy:50000 > storage1:6200
      101000 > syn
      101050 < syn_ack
      101100 > 0:200 PUT /d1/7/AUTH_test/c/o tx=tx1
      103000 < 0:100 201 tx=tx1
    proxy:50001 > storage2:6200
      101000 > syn
      101050 < syn_ack
      101100 > 0:200 PUT /d1/7/AUTH_test/c/o tx=tx1 lost
      101400 > 0:200 #2 PUT /d1/7/AUTH_test/c/o tx=tx1
      103200 < 0:100 201 tx=tx1
    proxy:50002 > storage3:6200
      101000 > syn
      101050 < rst
    client:40001 > proxy:8080
      120000 > 0:200 HEAD /v1/AUTH_test/c/o tx=tx2
      121000 < 0:100 200 tx=tx2
"""
RAN = CommandInfo(("swift", "upload", "c", "o"), "client", BASE_NS, BASE_NS + 130_000_000, 0)
DROPPED = CounterInfo("proxy", "capture_drops", "data_loss", 12, "capture with a larger buffer")
NOTED = CounterInfo("proxy", "packets_not_tcp", "info", 4, "")

CASES = {
    "command": (UPLOAD, RAN, (DROPPED, NOTED)),
    "requests": (UPLOAD, None, ()),
    "silence": ("client:40000 > proxy:8080\n 0 > syn", None, ()),
}


def text_of(url: str) -> str:
    printed = io.StringIO()
    show(build_report(url), Console(width=WIDTH, highlight=False, file=printed))
    return "".join(f"{line.rstrip()}\n" for line in printed.getvalue().splitlines())


@pytest.mark.parametrize("name", CASES)
def test_text_is_the_golden_one(name: str, tmp_path: Path, regenerate: bool) -> None:
    script, ran, counters = CASES[name]
    write_script_trace(str(tmp_path / "trace"), script, ran, counters)
    text = text_of(str(tmp_path / "trace"))
    golden = GOLDEN / f"{name}.txt"
    if regenerate:
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


def test_few_columns_of_all_requests_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All others a group of rows at a time: a trace may have tens of millions of requests."""
    write_script_trace(str(tmp_path / "trace"), UPLOAD, None, ())
    whole, read = set[str](), Trace.read

    def note_and_read(trace: Trace, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        if name in ("exchanges", "spans", "connections", "silences"):
            assert columns is not None
            whole.update(columns)
        return read(trace, name, columns)

    monkeypatch.setattr(Trace, "read", note_and_read)
    assert build_report(str(tmp_path / "trace")).requests.count == 2
    assert whole <= {"exchange_id", "span_id", "trace_id", "target", "link_reason", "confidence"}


def many(hosts: int, requests: int) -> str:
    """Requests to many hosts, each with a loss, and a failed connection for each: a long report."""
    text = ""
    for number in range(requests):
        at = number * 5_000_000
        text += f"""
            client:{10000 + number} > host-with-a-rather-long-name-{number % hosts}:8080
              {at} > 0:100 GET /v1/{"long" * 40}/{number} lost tx={"t" * 34}
              {at + 200} > 0:100 #2 GET /v1/{"long" * 40}/{number} tx={"t" * 34}
              {at + 900} < 0:100 503
            client:{30000 + number} > host-with-a-rather-long-name-{number % hosts}:8080
              {at} > syn
              {at + 100} < rst
        """
    return text


def test_a_long_report_fits_one_screen(tmp_path: Path) -> None:
    counters = tuple(CounterInfo(f"h{n}", "capture_drops", "data_loss", n + 1, "x" * 60) for n in range(20))
    write_script_trace(str(tmp_path / "trace"), many(hosts=30, requests=60), None, counters)
    lines = text_of(str(tmp_path / "trace")).splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= WIDTH
    pairing = next(at for at, line in enumerate(lines) if line.startswith("Pairing  100 % of "))
    assert "of 3 hops  client 10.0.0.1:10000 → host-with-a-rather-long-name-0" in lines[pairing + 1]
    assert "… and 57 more, none worse" in lines[pairing + 4]


def busy(count: int, work_us: int, slow_every: int = 0) -> str:
    """Requests, one after the other, each with a little more or less of work; some with very much more."""
    text = ""
    for number in range(count):
        at, took = (
            number * 1_000_000,
            work_us + 7 * (number % 11) + (40 * work_us if slow_every and number % slow_every == 1 else 0),
        )
        text += f"""
            client:{10000 + number} > proxy:8080
              {at} > 0:100 GET /v1/{number} tx=t{number}
              {at + took} < 0:100 200
        """
    return text


def test_where_requests_spend_their_time_and_what_makes_slow_ones_slow(tmp_path: Path) -> None:
    url = str(tmp_path / "trace")
    write_script_trace(url, busy(200, 1_000, slow_every=19), None, ())
    report = build_report(url)
    assert report.stages[0].stage == "work in swift-proxy"
    requests = report.requests
    assert sum(line.mean_ns for line in report.stages) == pytest.approx(requests.mean_ns, abs=len(report.stages))
    assert report.stages[0].slowest_mean_ns > 30_000_000 > report.stages[0].mean_ns
    text = text_of(url)
    assert "Where requests spend their time" in text
    assert "slow GET at swift-proxy, typical → slowest 5 %: work in swift-proxy: 1.0 ms → " in text
    assert "on average" in make_html(report)
    for said in (text, make_html(report)):
        assert "mean of the slowest 2 %" in said
        assert "at p99" not in said
    slowest = sorted((line.duration_ns for line in requests.slowest), reverse=True)[:4]  # 2 % of 200
    assert sum(line.slowest_mean_ns for line in report.stages) == pytest.approx(sum(slowest) / 4, rel=1e-6)


def test_two_traces_are_compared(tmp_path: Path) -> None:
    for name, work_us in (("before", 1_000), ("again", 1_000), ("after", 3_000)):
        write_script_trace(str(tmp_path / name), busy(60, work_us), None, ())
    slower = CliRunner().invoke(command, [str(tmp_path / "after"), "--compare", str(tmp_path / "before")])
    assert "work in swift-proxy: 1.0 ms → 3.0 ms (+2.0 ms ± " in slower.output
    same = CliRunner().invoke(command, [str(tmp_path / "again"), "--compare", str(tmp_path / "before")])
    assert "no stage differs by more than noise" in same.output
    assert "noise" in make_html(build_report(str(tmp_path / "again"), str(tmp_path / "before")))
    missing = CliRunner().invoke(command, [str(tmp_path / "after"), "--compare", str(tmp_path / "nowhere")])
    assert missing.exit_code != 0


def test_figures_of_pairing_are_never_cut(tmp_path: Path) -> None:
    script = """
        client-host-with-a-very-long-name-for-a-host:1 > another-host-with-a-name-at-least-as-long-as-this:8080
          0 > 0:100 lost
        200 > 0:100 #2 late=-9
        300 < 0:50 unseen
    """
    write_script_trace(str(tmp_path / "trace"), script)
    text = text_of(str(tmp_path / "trace"))
    assert "Pairing  66.66 % of 150 bytes paired; 3 hops, 1 of them received before sent" in text
    header, there, back = text.split("Pairing", 1)[1].splitlines()[2:5]
    assert header.split() == ["hops", "matched", "sent", "again", "lost", "dropped", "early"]
    assert there.startswith("  client-host-with-a-very-long-name-for-a-host → ")
    assert there.split("…")[1].split() == ["2", "100", "%", "1", "1", "1"]
    assert back.split("…")[1].split() == ["1", "0", "%", "1"]


@pytest.mark.parametrize("width", [60, 100, 200])
def test_nothing_that_says_what_to_do_is_cut(tmp_path: Path, width: int) -> None:
    counter = CounterInfo("proxy", "capture_drops", "data_loss", 12, "capture with a larger buffer, " * 9 + "or less")
    write_script_trace(str(tmp_path / "trace"), UPLOAD, None, (counter,))
    report, printed = build_report(str(tmp_path / "trace")), io.StringIO()
    show(report, Console(width=width, highlight=False, file=printed, force_terminal=True, color_system=None))
    lines = printed.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert max(map(len, lines)) > 0.8 * min(width, 130)
    words = " ".join(printed.getvalue().split())
    for remedy in [counter.remedy, report.story.sentence, *(finding.remedy for finding in report.findings[:3])]:
        assert " ".join(remedy.split()) in words


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_a_long_part_of_the_time_takes_two_lines_and_cuts_no_figure(tmp_path: Path, width: int) -> None:
    write_script_trace(str(tmp_path / "trace"), UPLOAD)
    report = build_report(str(tmp_path / "trace"))
    long = "in a-service-with-a-long-name, between pieces of its answer or before the close that ended it"
    parts = [replace(part, label=f"{long} {n}") for n, part in enumerate(report.story.parts)]
    report = replace(report, story=replace(report.story, parts=tuple(parts)))
    printed = io.StringIO()
    show(report, Console(width=width, highlight=False, file=printed, force_terminal=True, color_system=None))
    section = printed.getvalue().split("Where the time went", 1)[1].split("\nHosts", 1)[0]
    section, _, bound = section.partition("  ± as likely at 95 %; ")
    assert bound == "no part is off by more than 1.0 µs\n"
    assert "…" not in section
    assert section.count(" %") == section.count("%") == len(parts)
    assert max(map(len, section.splitlines())) <= width
    assert max(line.count("█") for line in section.splitlines()) == 10


def test_the_command_prints_plainly_into_a_pipe(tmp_path: Path) -> None:
    write_script_trace(str(tmp_path / "trace"), UPLOAD, RAN, (DROPPED,))
    result = CliRunner().invoke(command, [str(tmp_path / "trace")])
    assert result.exit_code == 0
    assert result.output.startswith("`swift upload c o` took 130.0 ms: ")
    assert "\x1b" not in result.output
    assert "! proxy: capture drops: 12; capture with a larger buffer" in result.output


def test_json_holds_everything(tmp_path: Path) -> None:
    write_script_trace(str(tmp_path / "trace"), UPLOAD, RAN, (DROPPED,))
    result = CliRunner().invoke(command, [str(tmp_path / "trace"), "--json"])
    document = json.loads(result.output)
    assert document == json.loads(json.dumps(to_builtins(build_report(str(tmp_path / "trace")))))
    assert sum(part["duration_ns"] for part in document["story"]["parts"]) == 130_000_000
    assert document["hop_states"] == {"matched": 18, "lost": 1}
    assert document["requests"]["count"] == 2
    assert [bar["depth"] for bar in document["slowest_spans"]] == [0, 1, 1]
    assert document["pairing"]["total"]["lost_count"] == 1
    assert len(document["pairing"]["host_pairs"]) == 8
    assert [each["client_port"] for each in document["pairing"]["worst_connections"]] == [50001]


def test_a_protocol_without_visible_status_is_neither_ok_nor_failed(tmp_path: Path) -> None:
    script = "".join(
        f"client:{41000 + n} > db:5432\n {n * 900} > syn\n {n * 900 + 50} < syn_ack\n {n * 900 + 100} > 0:20\n"
        f" {n * 900 + 300} < 0:40\n"
        for n in range(4)
    )
    write_script_trace(str(tmp_path / "trace"), script + "client:42000 > db:5432\n 5000 > 0:20\n 5100 < rst\n")
    requests = json.loads(CliRunner().invoke(command, ["--json", str(tmp_path / "trace")]).output)["requests"]
    assert (requests["count"], requests["failed_count"], requests["unknown_count"]) == (
        5,
        1,
        4,
    )
    assert {line["outcome"] for line in requests["slowest"]} == {"failed", "unknown"}
    words = "1 failed, 4 of unknown outcome"
    assert words in text_of(str(tmp_path / "trace"))
    assert words in make_html(build_report(str(tmp_path / "trace")))


def test_what_clients_gave_up_has_a_row_of_its_own_and_is_in_no_mean(tmp_path: Path) -> None:
    script = "client:40000 > proxy:8080\n0 > 0:100 GET /a\n 300 < 0:50 200 body=0 with=0\n"
    script += "client:40001 > proxy:8080\n0 > 0:100 GET /b\n 300000 > fin@100\n 300050 < fin@0\n"
    write_script_trace(str(tmp_path / "trace"), script)
    requests = build_report(str(tmp_path / "trace")).requests
    assert (requests.count, requests.abandoned_count, requests.failed_count) == (2, 1, 0)
    assert (requests.mean_ns, requests.abandoned_median_ns) == (320_000, 300_000_000)
    assert [line.name for line in requests.slowest] == ["GET /a"]
    said = text_of(str(tmp_path / "trace"))
    assert "2: mean 320.0 µs, median 320.0 µs, p99 320.0 µs; 1 given up by clients" in said
    assert "1 was given up by its client, after 300.0 ms; no mean, median or percentile has it" in said
    assert "1 was given up by its client, after 300.0 ms" in make_html(build_report(str(tmp_path / "trace")))


def test_a_request_that_was_given_up_is_drawn_until_then(tmp_path: Path) -> None:
    script = "client:40000 > proxy:8080\n100 > syn\n150 < syn_ack\n200 > 0:200 GET /a\n900 > fin\n950 < fin"
    write_script_trace(str(tmp_path / "trace"), script)
    (bar,) = build_report(str(tmp_path / "trace")).slowest_spans
    assert bar.bounds_ns[-2:] == (800_000, 800_000)


def test_the_page_is_one_file_that_loads_nothing(tmp_path: Path) -> None:
    write_script_trace(str(tmp_path / "trace"), UPLOAD.replace("/c/o", "/c/<b>"), RAN, (DROPPED,))
    result = CliRunner().invoke(command, [str(tmp_path / "trace"), "--html", str(tmp_path / "page.html")])
    assert result.exit_code == 0
    page = (tmp_path / "page.html").read_text()
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=", page)
    assert "&lt;b&gt;" in page
    assert "swift-object @ storage2" in page
    assert "capture_drops: 12" in page
    assert "100 % of 1,200 bytes paired; 19 hops, none received before it was sent." in page
    assert "<td>proxy → storage2</td><td>3</td><td>100 %</td><td>1</td><td>1</td>" in page
    assert "proxy 10.0.0.1:50001 → storage2 10.0.0.2:6200" in page


def test_a_page_for_a_trace_without_requests(tmp_path: Path) -> None:
    write_script_trace(str(tmp_path / "trace"), "client:40000 > proxy:8080\n 0 > syn")
    assert "No whole request was seen" in make_html(build_report(str(tmp_path / "trace")))


def test_a_page_that_cannot_be_written_is_the_operators(tmp_path: Path) -> None:
    write_script_trace(str(tmp_path / "trace"), UPLOAD)
    result = CliRunner().invoke(command, [str(tmp_path / "trace"), "--html", str(tmp_path / "no" / "page.html")])
    assert "cannot write the page (No such file or directory)" in str(result.exception)
