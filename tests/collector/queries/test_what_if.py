"""What if the network or a server were otherwise: changes of traces, and what the command prints."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from collector.analysis import analyse
from collector.commands.what_if import command
from collector.decode.sources import host_sources
from collector.queries.trace_view import TraceView, open_trace
from collector.queries.what_if import Changes, what_if
from tests.helpers.script_traces import write_script_trace
from tracer.errors import InputError

CAPTURES = Path(__file__).resolve().parents[3] / "captures"
OPENED = "client:{port} > proxy:8080\n0 > syn\n50 < syn_ack\n"
LOST = "20000 > 0:100 GET /a\n20250 < 0:50 200 lost\n60250 < 0:50 200 #2\n"


@pytest.fixture(scope="module")
def bundled_trace(tmp_path_factory: pytest.TempPathFactory) -> TraceView:
    place = tmp_path_factory.mktemp("bundled") / "trace"
    analyse(host_sources([str(CAPTURES / "bench-2-puts")]), str(place))
    return open_trace(str(place))


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> TraceView:
    """A request that is answered after 250 µs, and one whose answer was lost and sent again after 40 ms."""
    place = tmp_path_factory.mktemp("lossy") / "trace"
    usual = "1000 > 0:100 GET /a\n1250 < 0:50 200\n"
    write_script_trace(str(place), OPENED.format(port=40_000) + usual + OPENED.format(port=40_001) + LOST)
    return open_trace(str(place))


def test_a_change_that_changes_nothing_is_as_measured(bundled_trace: TraceView) -> None:
    found = what_if(bundled_trace, Changes(own_time={"proxy": 1.0}))
    measured = dict(bundled_trace.load.table.select("number", "duration_ns").rows())
    assert sum(each.count for each in found.classes) == len(measured)
    assert {each.changed_count for each in found.classes} == {0}
    durations = [int(each) for was, now in found.durations_ns.values() for each in now]
    assert sorted(durations) == sorted(measured.values())


def test_more_calls_than_can_be_played_are_refused_before_they_are_read(
    bundled_trace: TraceView, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls_count = bundled_trace.exchanges_count(bundled_trace.load.table["number"].to_numpy())
    monkeypatch.setattr("collector.queries.what_if.MOST_CALLS", calls_count - 1)
    monkeypatch.setattr("collector.execution.memory.available_bytes", lambda: 4 * 4096 * (calls_count - 1))
    with monkeypatch.context() as unread:
        unread.setattr("collector.queries.what_if.RequestRows.of_trace", None)
        with pytest.raises(InputError, match=f"^{calls_count} calls are too many"):
            what_if(bundled_trace, Changes(quorum=1))
    monkeypatch.setattr("collector.execution.memory.available_bytes", lambda: 4 * 4096 * calls_count)
    assert what_if(bundled_trace, Changes(quorum=1)).classes


def test_a_quorum_of_one_does_not_wait_for_the_second_replica(bundled_trace: TraceView) -> None:
    found = what_if(bundled_trace, Changes(quorum=1))
    puts = next(each for each in found.classes if each.name.startswith("PUT object"))
    assert puts.changed_count == puts.count
    assert puts.p50_now_ns < puts.p50_ns
    assert not any("fan-out" in limit or "at once" in limit for limit in found.limits)


def test_without_loss_its_stall_is_gone(lossy: TraceView) -> None:
    (found,) = what_if(lossy, Changes(no_loss=True)).classes
    assert (found.count, found.changed_count) == (2, 1)
    assert found.p99_ns - found.p99_now_ns == pytest.approx(40_000_000, abs=100_000)


def test_half_the_round_trip_is_half_of_all_ways(lossy: TraceView) -> None:
    (found,) = what_if(lossy, Changes(round_trip=0.5), ">1ms").classes
    way_ns = int(min(lossy.typical_delay_ns[lossy.typical_delay_ns > 0]))
    assert found.p50_ns - found.p50_now_ns == pytest.approx(2 * way_ns, rel=0.2)  # handshake, request, answer: 4 halves


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        (Changes(quorum=1), "a quorum changes nothing"),
        (Changes(no_delay=True), "TCP_NODELAY changes nothing"),
        (Changes(as_fast={"client": "proxy"}), "client answered no call"),
        (Changes(as_fast={"proxy": "client"}), "2 of 2 calls to proxy are left as they were"),
    ],
)
def test_what_cannot_be_said_is_said(lossy: TraceView, changes: Changes, limit: str) -> None:
    found = what_if(lossy, changes)
    assert any(limit in each for each in found.limits)
    assert {each.changed_count for each in found.classes} == {0}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (Changes(), "nothing is to be otherwise"),
        (Changes(quorum=0), "a quorum is 1 or more"),
        (Changes(round_trip=-1), "a factor is from 0 to 1000"),
        (Changes(round_trip=float("nan")), "a factor is from 0 to 1000"),
        (Changes(own_time={"nobody": 0.5}), "there is no host nobody"),
    ],
)
def test_changes_that_make_no_sense(lossy: TraceView, changes: Changes, what: str) -> None:
    with pytest.raises(InputError, match=what):
        what_if(lossy, changes)


def test_the_command(lossy: TraceView) -> None:
    done = CliRunner().invoke(command, [lossy.url, "--no-loss", "--own-time", "proxy=0.5"], catch_exceptions=False)
    assert "With no loss, own time of proxy × 0.5" in done.output
    assert "stay as they were" in " ".join(done.output.split())
    done = CliRunner().invoke(command, [lossy.url, "--no-loss", "--json"], catch_exceptions=False)
    assert json.loads(done.output)["classes"][0]["changed_count"] == 1
    for wrong in ("--own-time=proxy", "--own-time=proxy=x", "--as-fast=proxy"):
        failed = CliRunner().invoke(command, [lossy.url, wrong])
        assert isinstance(failed.exception, InputError)
