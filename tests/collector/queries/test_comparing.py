"""Two groups of requests, and two hosts, compared stage by stage."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from collector.commands.why import command
from collector.queries import TraceView, open_trace
from collector.queries.comparing import EVERY_KIND, compare_found, compare_servers
from tests.helpers.script_traces import write_script_trace
from tracer.errors import InputError


def requests(client: str, server: str, port: int, took_us: list[int], head: str, late_us: int = 20) -> str:
    """A connection with requests, one each 10 ms, that the server takes so long for."""
    lines = [f"{client}:{port} > {server}:8080", "0 > syn", "50 < syn_ack"]
    for number, took in enumerate(took_us):
        at, sent, got = 1_000 + 10_000 * number + port % 7, 100 * number, 50 * number
        lines += [
            f"{at} > {sent}:{sent + 100} late={late_us} {head}",
            f"{at + late_us + took} < {got}:{got + 50} late=30 200",
        ]
    return "\n".join(lines)


def trace_of(place: Path, *connections: str) -> TraceView:
    write_script_trace(str(place / "trace"), "\n".join(connections))
    return open_trace(str(place / "trace"))


@pytest.fixture
def trace(tmp_path: Path) -> TraceView:
    """A quick and a slow server; one asked for something else, too."""
    quick, slow = [200 + each for each in range(12)], [1_200 + each for each in range(12)]
    return trace_of(
        tmp_path,
        requests("client", "one", 40_000, quick, "GET /a"),
        requests("client", "two", 40_001, slow, "GET /a", late_us=120),
        requests("client", "two", 40_002, [5_000] * 6, "PUT /b"),
    )


def test_requests_that_are_found_against_others(trace: TraceView) -> None:
    found = compare_found(trace, "host:two method:get", "host:one")
    assert (found.first, found.second) == ("(host:one) and not (host:two method:get)", "host:two method:get")
    (kind,) = found.kinds
    assert (kind.first.requests_count, kind.second.requests_count) == (12, 12)
    by_stage = {each.stage: each for each in kind.stages}
    work = by_stage["work in swift-proxy"]
    assert work.difference_ns == pytest.approx(1_000_000)
    assert work.is_significant
    assert by_stage["uplink to swift-proxy"].difference_ns == pytest.approx(100_000)
    whole = kind.second.mean_ns - kind.first.mean_ns
    assert sum(each.difference_ns for each in kind.stages) == pytest.approx(whole, abs=len(kind.stages))


def test_without_a_second_search_all_others_are_the_second_group(trace: TraceView) -> None:
    (kind,) = compare_found(trace, "host:two method:get").kinds
    assert (kind.first.requests_count, kind.second.requests_count) == (12, 12)


def test_requests_of_different_kinds_are_compared_as_one(trace: TraceView) -> None:
    (kind,) = compare_found(trace, "method:put", "method:get").kinds
    assert (kind.kind, kind.first.requests_count, kind.second.requests_count) == (EVERY_KIND, 24, 6)


def test_what_both_searches_find_is_in_the_first_group(trace: TraceView) -> None:
    (kind,) = compare_found(trace, "host:two", "host:client").kinds
    assert (kind.first.requests_count, kind.second.requests_count) == (12, 12)
    with pytest.raises(InputError, match="finds no request of a client"):
        compare_found(trace, "host:client", "host:two")


def test_calls_of_two_hosts(trace: TraceView) -> None:
    found = compare_servers(trace, "two", "one")
    (kind,) = found.kinds
    assert (found.first, found.second, kind.kind) == ("one", "two", "GET at swift-proxy")
    by_stage = {each.stage: each for each in kind.stages}
    assert by_stage["server"].difference_ns == pytest.approx(1_000_000)
    assert by_stage["sending request and answer"].difference_ns == pytest.approx(100_000)
    assert found.left_out == ("PUT at swift-proxy",)
    with pytest.raises(InputError, match="nobody answers no call") as refused:
        compare_servers(trace, "nobody", "one")
    assert "one, two" in str(refused.value)


def test_a_host_whose_times_are_not_seen_leaves_the_call_undivided(tmp_path: Path) -> None:
    unseen = requests("client", "two", 40_001, [900] * 8, "GET /a")
    unseen = unseen.replace(" late=20", " unseen").replace(" late=30", " unsent late=30")
    trace = trace_of(tmp_path, requests("client", "one", 40_000, [200] * 8, "GET /a"), unseen)
    (kind,) = compare_servers(trace, "two", "one").kinds
    assert [each.stage for each in kind.stages] == ["call"]


def early(server: str, port: int) -> str:
    """Requests that are answered while their second half is still on the way."""
    lines = [f"client:{port} > {server}:8080", "0 > syn", "50 < syn_ack"]
    for number in range(6):
        at, sent, got = 1_000 + 10_000 * number, 100 * number, 50 * number
        lines += [f"{at} > {sent}:{sent + 60} PUT /b head=50 body=50", f"{at + 100} < {got}:{got + 50} 400"]
        lines += [f"{at + 300} > {sent + 60}:{sent + 100}"]
    return "\n".join(lines)


def test_a_server_that_answers_early_takes_no_time(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, early("one", 40_000), early("two", 40_001))
    (kind,) = compare_servers(trace, "two", "one").kinds
    by_stage = {each.stage: each for each in kind.stages}
    assert by_stage["server"].first_ns == 0
    assert by_stage["sending request and answer"].first_ns == kind.first.mean_ns > 0


def run(trace: TraceView, *words: str) -> str:
    result = CliRunner().invoke(command, [trace.url, *words])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_the_command(trace: TraceView) -> None:
    said = run(trace, "--search", "host:two method:get", "--than", "host:one")
    assert "12 → 12 requests" in said
    assert "work in swift-proxy" in said
    assert "server:" in run(trace, "--hosts", "two", "one")
    assert json.loads(run(trace, "--hosts", "two", "one", "--json"))["left_out"] == ["PUT at swift-proxy"]
    for words in (["--search", "a", "--hosts", "one", "two"], ["#1", "--search", "a"], ["--than", "a"]):
        with pytest.raises(InputError):
            run(trace, *words)
