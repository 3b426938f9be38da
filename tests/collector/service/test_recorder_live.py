"""Flight recorders, their collector and a trigger, on two real hosts: from a failed request to a pinned trace."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import polars as pl
import pytest

from collector.service.windows import ONLY
from collector.trace.reading import Trace
from testkit.live_hosts import Pair, pair
from testkit.recorded_pair import RecordedPair, record_pair
from tests.helpers.polling import wait_for
from tests.helpers.system_tools import or_skip
from tracer.errors import InputError

pytestmark = pytest.mark.live

SECOND = 1_000_000_000
AFTER_S = 4


@pytest.fixture
def hosts() -> Iterator[Pair]:
    with ExitStack() as stack:
        with or_skip():
            made = stack.enter_context(pair())
        yield made


def requests_of(trace: str) -> pl.DataFrame:
    columns = ["status", "client_host", "server_host"]
    frame = pl.DataFrame(Trace(trace).read("exchanges", columns))
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def has_requests(pair: RecordedPair) -> bool:
    try:
        return len(requests_of(pair.live_trace)) > 10
    except InputError:  # there is none yet, or it is being replaced
        return False


def test_a_failed_request_pins_what_was_before_and_after_it_at_both_ends(hosts: Pair, tmp_path: Path) -> None:
    options = ("--trigger", "status:error", "--trigger-before", "1", "--trigger-after", str(AFTER_S))
    with record_pair(hosts, tmp_path, *options, capture=("--sample", "10")) as both:
        wait_for(lambda: has_requests(both), "the live trace of the sample")
        failed_ns: list[int] = []

        def has_fired() -> bool:
            failed_ns.append(both.fail("req-failed"))  # a live trace of a slow machine leaves out some
            return bool(both.windows())

        wait_for(has_fired, "the trigger")
        wait_for(lambda: any(each["first_ns"] or each["ready_ns"] for each in both.windows()), "a first trace")
        (window,) = both.windows()
        assert any(window["from_ns"] < at_ns < window["to_ns"] for at_ns in failed_ns)
        first = requests_of(both.trace(window))
        assert first.filter(pl.col("status") == 500).select("client_host", "server_host").rows()[0] == ("a", "b")
        wait_for(lambda: bool(both.windows()[0]["ready_ns"]), "the whole trace")
        (window,) = both.windows()
        assert {host: part["state"] for host, part in window["parts"].items()} == {"a": "here", "b": "here"}
        info = Trace(both.trace(window)).info()
        assert sorted(host.host for host in info.hosts) == ["a", "b"]
        for host in info.hosts:
            assert (host.last_host_ns or 0) > window["to_ns"] - SECOND, "what came after the trigger is there"
        whole = requests_of(both.trace(window))
        assert len(whole) >= len(first)
        assert whole.filter(pl.col("status") == 500).height >= 1
        states = pl.DataFrame(Trace(both.trace(window)).read("hops", ["state"]))["state"].cast(pl.String)
        assert "lost" not in set(states)
        only_requests_of_one_connection(both)


def only_requests_of_one_connection(both: RecordedPair) -> None:
    """The last seconds of a request from both hosts: its connection alone, with both ends of each packet."""
    name = both.ask(last_seconds=60, only="req-failed")["window"]

    def is_ready() -> bool:
        return any(each["window"] == name and each["ready_ns"] for each in both.windows())

    wait_for(is_ready, "the trace of one request")
    trace = Trace(both.trace({"window": name}))
    found = requests_of(trace.url).rows()
    assert set(found) == {(500, "a", "b")}
    assert trace.read("connections", ["client_host"]).num_rows == len(found)
    hops = pl.DataFrame(trace.read("hops", ["state", "send_host", "receive_host"]))
    assert set(hops["state"].cast(pl.String)) == {"matched"}
    assert [each.name for each in trace.info().counters if each.severity == "notice"] == [ONLY]
    assert sum(path.stat().st_size for path in both.data.glob(f"sessions/{name}/*/*/*.pcapng")) < 20_000 * len(found)
