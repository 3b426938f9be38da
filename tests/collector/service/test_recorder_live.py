"""Flight recorders, their collector and a trigger, on two real hosts: from a failed request to a pinned trace."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import polars as pl
import pytest

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
        failed_ns = both.fail("req-failed")
        wait_for(lambda: any(each["first_ns"] or each["ready_ns"] for each in both.windows()), "a first trace")
        (window,) = both.windows()
        assert window["from_ns"] < failed_ns < window["to_ns"]
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
        assert len(whole) > len(first)
        assert whole.filter(pl.col("status") == 500).height == 1
        states = pl.DataFrame(Trace(both.trace(window)).read("hops", ["state"]))["state"].cast(pl.String)
        assert "lost" not in set(states)
