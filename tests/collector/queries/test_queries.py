"""What a viewer asks of a trace."""

import json
from pathlib import Path

import pytest

from collector.queries import LEDGER_COLUMNS, NO_LANE, HopState, TraceView, open_trace
from testkit.synthetic_trace import EPOCH_NS, Recipe, write_synthetic_trace
from tracer.errors import InputError


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> TraceView:
    """Three uploads over twelve storage hosts, with a command."""
    folder = tmp_path_factory.mktemp("trace") / "uploads"
    write_synthetic_trace(folder, Recipe(storages_count=12, lost_share=0.05, lone_share=0.02))
    return open_trace(str(folder))


def test_lanes_run_from_the_client_inwards_and_unused_hosts_come_last(trace: TraceView) -> None:
    hosts = [lane.host for lane in trace.lanes]
    assert hosts[:2] == ["client", "proxy"]
    used = [lane.host for lane in trace.lanes if lane.packets_count]
    assert hosts[: len(used)] == used
    numbers = [int(host.removeprefix("storage")) for host in used[2:]]
    assert numbers == sorted(numbers)  # 2 before 10
    assert len(hosts) == 14


def test_time_begins_with_the_command(trace: TraceView) -> None:
    assert trace.start_ns == EPOCH_NS
    assert trace.command is not None
    assert trace.command.from_ns == 0
    assert trace.command.lane == 0 != NO_LANE
    assert trace.summary.first_hop_ns == pytest.approx(40_000_000, abs=10_000)


def test_the_summary_counts_every_hop_once(trace: TraceView) -> None:
    summary = trace.summary
    assert sum(summary.class_counts) == sum(summary.state_counts) == summary.hops_count > 150
    assert summary.requests_count == 3


def test_requests_come_slowest_first_and_own_their_hops(trace: TraceView) -> None:
    requests = trace.requests(10)
    durations = [request.duration_ns for request in requests]
    assert durations == sorted(durations, reverse=True)
    assert sum(request.hops_count for request in requests) == trace.summary.hops_count
    assert trace.requests(2) == requests[:2]


def test_spans_are_a_tree_in_order_of_time(trace: TraceView) -> None:
    spans = trace.spans(1)
    assert [span.depth for span in spans] == [0, 1, 1, 1]
    starts = [span.start_ns for span in spans[1:]]
    assert starts == sorted(starts)
    total = sum(getattr(each, name) for each in spans for name in LEDGER_COLUMNS)
    assert total == spans[0].duration_ns == trace.request(1).duration_ns


def test_a_hop_has_the_packets_of_the_ends_that_were_seen(trace: TraceView) -> None:
    states = set()
    for number in range(trace.summary.hops_count):
        hop = trace.hop(number)
        assert hop is not None
        states.add(hop.state)
        assert (hop.sent_packet is None) == (hop.sent_ns is None)
        assert (hop.received_packet is None) == (hop.received_ns is None)
        if hop.sent_packet is not None and hop.sent_ns is not None:
            assert hop.sent_packet.host == hop.source_host
            assert hop.sent_packet.host_ns == trace.start_ns + hop.sent_ns
    assert {HopState.MATCHED, HopState.LOST} < states
    assert trace.hop(trace.summary.hops_count) is None


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such trace"):
        open_trace(str(tmp_path / "nothing"))


def test_a_hop_of_a_trace_that_was_made_anew_is_refused(tmp_path: Path) -> None:
    """As a live trace is: its rows are others now."""
    folder = tmp_path / "live"
    write_synthetic_trace(folder, Recipe())
    opened = open_trace(str(folder))
    assert opened.hop(0) is not None
    file = folder / "trace.json"
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {"created_ns": document["created_ns"] + 1}))
    with pytest.raises(InputError, match="made anew since it was opened"):
        opened.hop(0)


def test_packets_of_a_connection_are_stepped_through_in_order(trace: TraceView) -> None:
    hops = [trace.hop(number) for number in range(trace.summary.hops_count)]
    by_connection: dict[int | None, list[int]] = {}
    for hop in hops:
        assert hop is not None
        by_connection.setdefault(hop.connection_id, []).append(hop.number)
    for numbers in list(by_connection.values())[:4]:
        assert [trace.packet_beside(number) for number in numbers] == [*numbers[1:], None]
        assert [trace.packet_beside(number, backwards=True) for number in numbers] == [None, *numbers[:-1]]
