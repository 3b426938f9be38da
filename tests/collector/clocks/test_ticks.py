"""How fine a capture's stamps are, from its file to the error bars: the same packets in ns and in us."""

from pathlib import Path

import polars as pl
import pytest

from collector.analysis import analyse
from collector.decode.host_capture import HostSource
from collector.trace.reading import Trace
from testkit.capture_files import pcap
from testkit.capture_records import Record, split

CAPTURES = Path(__file__).parents[3] / "captures" / "swift-upload-1B"


def stamp_ns(record: Record) -> int:
    high, low = record.stamp()
    return high << 32 | low


@pytest.fixture(scope="module")
def hops(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, pl.DataFrame]:
    """The hops of a bundled capture, as pcap files with nanoseconds (True) and with microseconds (False)."""
    folder, found = tmp_path_factory.mktemp("ticks"), {}
    for nanoseconds in (True, False):
        sources = []
        for file in sorted(CAPTURES.glob("*.pcapng")):
            packets = [(stamp_ns(record), record.packet) for record in split(file.read_bytes()) if record.is_packet]
            path = folder / f"{file.stem}-{nanoseconds}.pcap"
            path.write_bytes(pcap(packets, nanoseconds=nanoseconds))
            sources.append(HostSource(file.stem, (path,)))
        analyse(sources, str(folder / str(nanoseconds)))
        columns = ["send_host", "send_frame", "receive_host", "receive_frame", "uncertainty_ns"]
        table = pl.DataFrame(Trace(str(folder / str(nanoseconds))).read("hops", columns))
        found[nanoseconds] = table.with_columns(pl.col(pl.Categorical).cast(pl.String))
    return found


def test_stamps_in_microseconds_widen_the_error_bars_between_clocks(hops: dict[bool, pl.DataFrame]) -> None:
    ends = ["send_host", "send_frame", "receive_host", "receive_frame"]
    both = hops[True].drop_nulls().join(hops[False].drop_nulls(), on=ends, suffix="_coarse")
    assert len(both) == len(hops[True].drop_nulls()) > 300
    one_clock = both["send_host"] == both["receive_host"]
    wider = both["uncertainty_ns_coarse"] - both["uncertainty_ns"]
    assert set(wider.filter(one_clock)) == {0}
    wider = wider.filter(~one_clock)
    assert wider.min() >= 1_000 - 5
    assert wider.max() <= 3_000
