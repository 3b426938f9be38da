"""When an agent captured that was stopped and started again under traffic, and that nothing is lost meanwhile."""

from pathlib import Path

import polars as pl
import pytest

from collector.analysis import HostSource, analyse
from collector.trace.reading import Trace
from testkit.live_hosts import Pair

pytestmark = pytest.mark.live


def test_an_agent_restarted_under_traffic(hosts: Pair, tmp_path: Path) -> None:
    with hosts.a.capture(tmp_path / "a") as at_a, hosts.b.capture(tmp_path / "b") as at_b:
        hosts.exchange(*[3_000] * 50)
        at_b.stop()
        hosts.exchange(*[3_000] * 50)
        with hosts.b.capture(tmp_path / "b") as again:
            hosts.exchange(*[3_000] * 50)
            again.stop()
        at_a.stop()
    sources = [HostSource(host, tuple(sorted((tmp_path / host).rglob("*.pcapng")))) for host in "ab"]
    info = analyse(sources, str(tmp_path / "trace"))
    assert [len(each.coverage) for each in info.hosts if each.host == "b"] == [2]
    trace = Trace(str(tmp_path / "trace"))
    states = pl.DataFrame(trace.read("hops", ["state"]))["state"].cast(pl.String).to_list()
    assert set(states) <= {"matched", "outside_window", "ambiguous"}
    assert states.count("outside_window") > 100
    kinds = set(trace.read("findings")["kind"].to_pylist())
    assert not kinds & {"packet_loss", "link_down", "capture_drop"}
