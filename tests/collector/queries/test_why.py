"""Why a request took longer: its stages against those of its class, and the causes that its packets show."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from collector.analysis import analyse
from collector.commands.why import command
from collector.decode.sources import host_sources
from collector.queries import why_causes
from collector.queries.trace_view import TraceView, open_trace
from collector.queries.why import (
    Why,
    explain,
    explain_against_request,
    explain_against_trace,
    explain_slowest,
    find_request,
)
from collector.requests.spans import LEDGER_COLUMNS
from collector.trace.durations import in_words
from testkit.netsim import Network, NetworkPath, Station
from tests.helpers.script_traces import write_script_trace
from tracer.errors import InputError

BUNDLED = Path(__file__).resolve().parents[3] / "captures" / "bench-2-puts"
OPENED = "\n{client}:{port} > proxy:8080\n 0 > syn\n 50 < syn_ack\n"


def connection(port: int, *lines: str, client: str = "client") -> str:
    return OPENED.format(client=client, port=port) + "\n".join(lines)


def alike(count: int, from_us: int, took_us: int, status: int = 200) -> list[str]:
    """So many requests of one connection, one each millisecond, whose answers leave after so long."""
    lines = []
    for number in range(count):
        at, sent, got = from_us + number * 1_000, number * 100, number * 50
        lines += [f"{at} > {sent}:{sent + 100} GET /a", f"{at + took_us} < {got}:{got + 50} {status}"]
    return lines


def usual(count: int) -> list[str]:
    """So many requests: 20 µs to the proxy, 230 µs there, 20 µs back."""
    return alike(count, 1_000, 250)


def view_of(place: Path, *connections: str) -> TraceView:
    write_script_trace(str(place / "trace"), "\n".join(connections))
    return open_trace(str(place / "trace"))


def why_slowest(place: Path, *lines: str) -> Why:
    """Of a connection with twelve usual requests, and one on another with these lines."""
    return explain_slowest(view_of(place, connection(40_000, *usual(12)), connection(40_001, *lines)))


def test_the_stages_of_a_slow_server(tmp_path: Path) -> None:
    why = why_slowest(tmp_path, "20000 > 0:100 GET /a", "24250 < 0:50 200")
    assert (why.title, why.service, why.alike_count) == ("GET /a", "swift-proxy", 12)
    (work, *others) = why.stages
    assert (work.stage, work.duration_ns, work.usual_ns) == ("work in swift-proxy", 4_230_000, 230_000)
    assert work.shorter_share == why.shorter_share == 1
    assert [(each.host, each.title, each.duration_ns) for each in work.where] == [("proxy", "GET /a", 4_230_000)]
    assert why.extra_ns == sum(each.extra_ns for each in why.stages)
    assert sum(each.extra_ns for each in others) < 100_000
    assert why.small_words == f"{len(others)} other stages together"
    assert replace(why, stages=why.stages[:2]).small_words == "1 other stage"


@pytest.mark.parametrize(
    ("lines", "stage", "expected"),
    [
        (
            ["20000 > 0:100 GET /a", "20250 < 0:50 200 lost", "60250 < 0:50 200 #2"],
            "retransmission to and from swift-proxy",
            "the data packet of 50 bytes from proxy to client was lost, and sent again after 40.0 ms",
        ),
        (
            ["20000 > 0:100 GET /a", "20250 < 0:50 200 late=30000"],
            "downlink from swift-proxy",
            "the data packet of 50 bytes from proxy to client took 30.0 ms on its way, usually 20.0 µs",
        ),
    ],
)
def test_the_cause_is_a_packet(lines: list[str], stage: str, expected: str, tmp_path: Path) -> None:
    why = why_slowest(tmp_path, *lines)
    assert why.stages[0].stage == stage
    assert [cause.text for cause in why.stages[0].causes] == [expected]
    hop = open_trace(str(tmp_path / "trace")).hop(why.stages[0].causes[0].hop)
    assert (hop.source_host, hop.target_host, hop.stream_start) == ("proxy", "client", 0)


def test_a_packet_that_is_lost_again_is_sent_again_each_time(tmp_path: Path) -> None:
    lines = ["20000 > 0:100 GET /a", "20250 < 0:50 200 lost", "30250 < 0:50 200 #2 lost", "60250 < 0:50 200 #3"]
    lines += ["60300 > ack@100 lost"]  # nobody waited for it
    why = why_slowest(tmp_path, *lines)
    lost = "the data packet of 50 bytes from proxy to client was lost, and sent again after"
    assert [cause.text for cause in why.stages[0].causes] == [f"{lost} 10.0 ms", f"{lost} 30.0 ms"]


def test_another_packet_that_is_sent_again_is_not_the_lost_one(tmp_path: Path) -> None:
    lines = ["20000 > 0:100 GET /a", "20250 < 0:50 200", "20260 < 50:100 lost", "20270 < 100:150 lost"]
    why = why_slowest(tmp_path, *lines, "40000 < 100:150 #2", "60000 < 50:100 #2")
    texts = [cause.text for stage in why.stages for cause in stage.causes if "lost" in cause.text]
    assert [text.rpartition("after ")[2] for text in texts] == ["39.7 ms", "19.7 ms"]


def test_the_cause_is_a_busy_server(tmp_path: Path) -> None:
    crowd = [connection(41_000 + each, "20000 > 0:100 PUT /b", "40000 < 0:50 200") for each in range(6)]
    view = view_of(
        tmp_path,
        connection(40_000, *usual(12)),
        connection(40_001, "21000 > 0:100 GET /a", "25250 < 0:50 200"),
        *crowd,
    )
    gets = [each.number for each in view.requests(100) if each.title == "GET /a"]
    causes = [cause.text for cause in explain(view, gets[0]).stages[0].causes]
    assert causes == ["7 requests were under way at swift-proxy on proxy, usually 1"]


@pytest.mark.parametrize(("count", "usual", "expected"), [(7, 1, True), (14, 10, False), (3, 1, False), (20, 10, True)])
def test_a_server_is_busy_against_what_is_usual_there(count: int, usual: float, *, expected: bool) -> None:
    load = SimpleNamespace(under_way=lambda *_: [count], usually_under_way=lambda *_: usual)
    span = SimpleNamespace(server_host="proxy", service="swift-proxy", start_ns=0, request_received_ns=5)
    found = list(why_causes._busier(SimpleNamespace(load=load), span))
    assert [cause.from_ns for cause in found] == [5] * expected


def test_only_spans_that_hold_much_of_a_stage_are_looked_at(tmp_path: Path) -> None:
    """Two calls lose a packet; of the time that cost, one has 40 ms, the other 2."""
    calls = [
        f"proxy:5000{at} > storage1:6200\n{begin} > 0:100 PUT /d/1/o tx=t\n{begin + 100} < 0:50 201 tx=t lost\n"
        f"{begin + 100 + after} < 0:50 201 tx=t #2"
        for at, (begin, after) in enumerate(((21_000, 40_000), (65_000, 2_000)))
    ]
    slow = connection(40_001, "20000 > 0:100 GET /a tx=t", "80000 < 0:50 200 tx=t")
    why = explain_slowest(view_of(tmp_path, connection(40_000, *usual(12)), slow, *calls))
    (stage,) = [each for each in why.stages if each.stage == "retransmission to and from swift-object"]
    assert stage.duration_ns == 42_000_000
    assert [cause.text[-27:] for cause in stage.causes] == ["and sent again after 40.0 ms"[-27:]]


def put(port: int, at: int, answers: Sequence[int]) -> str:
    """An upload to the proxy, which asks storage1 first, and then all three at once; these answer after so many µs."""
    tx, end = f"tx={port}", at + 2_000 + max(answers)
    lines = [f"client:{port} > proxy:8080", f"{at} > 0:100 PUT /v1/a/c/o {tx}", f"{end} < 0:50 201 {tx}"]
    lines += [f"proxy:{port} > storage1:6200", f"{at + 200} > 0:100 PUT /d1/7/a/c/o {tx}"]
    lines += [f"{at + 500} < 0:50 201 {tx}"]
    for place, after in enumerate(answers, 1):
        lines += [f"proxy:{port + 10_000 + place} > storage{place}:6200"]
        lines += [f"{at + 1_000 + place} > 0:100 PUT /d1/7/a/c/o {tx}", f"{at + 1_000 + after} < 0:50 201 {tx}"]
    return "\n".join(lines)


def test_the_last_of_several_calls_is_named(tmp_path: Path) -> None:
    puts = [put(20_000 + 10 * each, 10_000 * each, (500, 600, 700)) for each in range(8)]
    why = explain_slowest(view_of(tmp_path, *puts, put(30_000, 200_000, (500, 600, 50_700))))
    (stage,) = [each for each in why.stages if "parallel calls" in each.stage]
    assert stage.extra_ns == 50_000_000
    assert [cause.text for cause in stage.causes] == ["storage3 answered last of 3 calls, 50.2 ms after storage1"]


def test_a_silence_of_tcps_is_named(tmp_path: Path) -> None:
    net = Network([Station("client", "10.0.0.1"), Station("server", "10.0.0.2")], NetworkPath(loss=0.05), 1)
    for number in range(20):
        net.connect("client", "server", 40_000 + number, 2_000, 60_000, at_ns=number * 20_000_000)
    net.run()
    analyse(host_sources(list(map(str, net.write(tmp_path)))), str(tmp_path / "trace"))
    view = open_trace(str(tmp_path / "trace"))
    silences = pl.read_parquet(tmp_path / "trace" / "silences.parquet").filter(
        pl.col("cause").cast(pl.String) == "held"
    )
    (held,) = silences.to_dicts()
    (number,) = view.requests_of_exchanges().filter(pl.col("exchange_id") == held["exchange_id"])["request"]
    (stage,) = [each for each in explain(view, number).stages if each.stage.startswith("TCP held the sender")]
    lasted = in_words(held["to_trace_ns"] - held["from_trace_ns"])
    assert [cause.text for cause in stage.causes] == [
        f"nothing was on the way for {lasted}: TCP held the sender (its window, or a delayed acknowledgement)"
    ]


def test_a_finding_about_the_server_at_that_time_is_named(tmp_path: Path) -> None:
    view = view_of(tmp_path, connection(40_000, *usual(3)), "client:40001 > proxy:8080\n 50000 > syn\n 50050 < rst\n")
    (row,) = view._tables.trouble.to_pylist()
    host, text, at, until = (row[name] for name in ("host", "text", "from_trace_ns", "to_trace_ns"))
    begin, end = at - view.start_ns, until - view.start_ns
    assert view.findings_at(host, begin, end) == [(text, begin, end)]
    assert view.findings_at(host, end + 1, end + 2) == view.findings_at(host, begin - 2, begin - 1) == []
    assert view.findings_at("nowhere", begin, end) == []
    span = SimpleNamespace(server_host=host, start_ns=begin, end_ns=end)
    assert [cause.text for cause in why_causes._findings(view, span)] == [f"finding: {text}"]
    assert list(why_causes._findings(view, SimpleNamespace(server_host=None, start_ns=begin, end_ns=end))) == []


def test_the_quickest_quarter_and_what_failed_are_not_the_usual(tmp_path: Path) -> None:
    quick, failed = alike(3, 100_000, 50), alike(4, 200_000, 400, status=500)
    slow = connection(40_003, "20000 > 0:100 GET /a", "24250 < 0:50 200")
    why = explain_slowest(
        view_of(tmp_path, connection(40_000, *usual(12)), connection(40_001, *quick), connection(40_002, *failed), slow)
    )
    assert (why.alike_count, why.usual_ns) == (15, 270_000)


def test_nothing_is_said_without_evidence(tmp_path: Path) -> None:
    why = why_slowest(tmp_path, "20000 > 0:100 GET /a", "24250 < 0:50 200")
    assert [cause for stage in why.stages for cause in stage.causes] == []


def test_against_another_request(tmp_path: Path) -> None:
    view = view_of(
        tmp_path, connection(40_000, *usual(3)), connection(40_001, "20000 > 0:100 GET /a", "24250 < 0:50 200")
    )
    slowest, other = find_request(view, "slowest"), find_request(view, "#1")
    why = explain_against_request(view, slowest, other)
    assert (why.shorter_share, why.against, why.alike_count) == (None, "request #1", 1)
    assert why.duration_ns == view.request(slowest).duration_ns
    assert why.usual_ns == view.request(other).duration_ns
    assert [each.extra_ns for each in explain_against_request(view, other, other).stages] == [0] * len(why.stages)


def test_against_another_trace(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    slow = view_of(first, connection(40_000, "1000 > 0:100 GET /a", "5250 < 0:50 200"))
    fast = view_of(second, connection(40_000, *usual(8)))
    why = explain_against_trace(slow, 0, fast)
    assert (why.alike_count, why.usual_ns) == (8, 270_000)
    assert why.stages[0].stage == "work in swift-proxy"
    assert why.stages[0].extra_ns == 4_000_000


def test_stages_are_the_ledger_of_real_requests(tmp_path: Path) -> None:
    place = str(tmp_path / "trace")
    analyse(host_sources([str(BUNDLED)]), place)
    view = open_trace(place)
    spans = pl.read_parquet(tmp_path / "trace" / "spans.parquet")
    numbers = [each.number for each in view.requests(10)]
    for number in numbers:
        why = explain_against_request(view, number, numbers[-1])
        own = spans.filter(pl.col("trace_id") == int(view.trace_ids(pl.Series([number]).to_numpy())[0]))
        assert why.duration_ns == own.select(pl.sum_horizontal(LEDGER_COLUMNS).sum()).item()
        assert sum(each.extra_ns for each in why.stages) == why.extra_ns
        for stage in why.stages:
            assert sum(each.duration_ns for each in stage.where) == stage.duration_ns, stage.stage


@pytest.mark.parametrize(
    ("words", "expected"),
    [("#99", "no request #99"), ("#0", "no request #0"), ("#x", "no request #x"), ("tx-none", "no request tx-none")],
)
def test_a_request_that_is_not_there(words: str, expected: str, tmp_path: Path) -> None:
    view = view_of(tmp_path, connection(40_000, *usual(1)))
    with pytest.raises(InputError, match=expected):
        find_request(view, words)


def test_stages_that_are_not_kept_give_the_same_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of requests without calls against their class, and of requests with calls against each other."""
    analyse(host_sources([str(BUNDLED)]), str(tmp_path / "bundled"))
    view_of(tmp_path, connection(40_000, *usual(12)), connection(40_001, *alike(3, 1_000, 900)))

    def answers() -> list[Why]:
        alone, bundled = (open_trace(str(tmp_path / name)) for name in ("trace", "bundled"))
        numbers = [request.number for request in bundled.requests(10)]
        against = [explain_against_request(bundled, number, numbers[-1]) for number in numbers]
        return [*(explain(alone, request.number) for request in alone.requests(15)), *against]

    kept = answers()
    monkeypatch.setattr("collector.queries.trace_view.MOST_KEPT_STAGES", 0)
    monkeypatch.setattr("collector.reporting.stage_times.ADDED_AT_ONCE", 20)
    assert answers() == kept
    assert len({why.shorter_share for why in kept}) > 3


def test_what_is_read_twice_is_not_counted_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = view_of(tmp_path, connection(40_000, *usual(12)), connection(40_001, *alike(3, 1_000, 900)))
    number = view.requests(1)[0].number
    once, read_unchanged = explain(view, number), TraceView.read_unchanged

    def read_twice(self: TraceView, read: Callable[[], object]) -> object:
        return read_unchanged(self, lambda: [read(), read()][1])

    monkeypatch.setattr(TraceView, "read_unchanged", read_twice)
    assert explain(view, number) == once


def test_a_class_that_is_too_small(tmp_path: Path) -> None:
    view = view_of(tmp_path, connection(40_000, *usual(3)))
    with pytest.raises(InputError, match="only 2 of others of its class, GET under 1 KiB at swift-proxy; 5 are needed"):
        explain(view, 0)


def test_a_trace_without_requests(tmp_path: Path) -> None:
    view = view_of(tmp_path, "client:40000 > proxy:8080\n 0 > syn\n 50 < rst")
    with pytest.raises(InputError, match="no request of a client"):
        explain_slowest(view)


def test_what_the_command_prints(tmp_path: Path) -> None:
    view = view_of(
        tmp_path,
        connection(40_000, *usual(12)),
        connection(40_001, "20000 > 0:100 GET /a", "20250 < 0:50 200 lost", "60250 < 0:50 200 #2"),
    )
    number = find_request(view, "slowest")
    done = CliRunner().invoke(command, [view.url])
    assert done.exit_code == 0, done.output
    words = " ".join(done.output.split())
    assert words.startswith(f"GET /a (#{number + 1}) took 40.3 ms, +40.")
    assert "12 others of its class, GET under 1 KiB at swift-proxy; longer than all of them" in words
    assert "+40.0 ms retransmission to and from swift-proxy 40.0 ms against none; longer than all of them" in words
    assert "was lost, and sent again after 40.0 ms" in words
    assert max(map(len, done.output.splitlines())) <= 100
    assert CliRunner().invoke(command, [view.url, "#1", "--against", f"#{number + 1}"]).exit_code == 0
    both = CliRunner().invoke(command, [view.url, "--against", "#1", "--in", view.url])
    assert isinstance(both.exception, InputError)
