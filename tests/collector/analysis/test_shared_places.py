"""An analysis in processes that share a folder gives the same trace, byte for byte, as one in this process.

What goes to other processes is pickled here, and taken up again; Dask's part is in `test_dask_places`.
"""

import json
import pickle
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from socket import inet_aton
from typing import Any

import pytest

from collector.analysis import AnalysisOptions, analyse, match_stage
from collector.analysis.places import SharedPlaces
from collector.clocks.evidence import Ways
from collector.clocks.steps import Frames, hops_near
from collector.decode import captures, host_capture
from collector.decode.input_limits import InputLimits
from collector.decode.sources import host_sources
from collector.decode.tls_keys import read_key_logs
from collector.trace.reading import Trace
from testkit import traffic_shapes
from testkit.netsim import Clock, Network, NetworkPath, Station
from tests.collector.decode.test_containers import cooked_capture, on_the_node
from tests.collector.decode.test_merged_captures import merge_captures, write_captures
from tests.collector.decode.test_tls_opening import conversation
from tests.helpers import tls_captures
from tests.helpers.system_tools import needs
from tracer.errors import InputError

BUNDLED = Path(__file__).resolve().parents[3] / "captures" / "bench-2-puts"
PARTS = AnalysisOptions(partition_bits=3)


class SteppedClock(Clock):
    """It is put forward by 7 ms at 0.4 s."""

    def read(self, at_ns: int) -> int:
        return super().read(at_ns) + (at_ns >= 400_000_000) * 7_000_000


class PicklingEngine:
    """Does all work here, on what other processes would have of it: what was pickled."""

    def run(
        self,
        work: Callable[[int], Any],
        parts: Iterable[int],
        store: Callable[[int, Any], None],
        *,
        at_once: int | None = None,
    ) -> None:
        numbers = list(parts)
        for number, result in zip(numbers, self.results(work, numbers), strict=True):
            store(number, result)

    def results(self, work: Callable[[Any], Any], jobs: Sequence[Any]) -> Iterator[Any]:
        sent = pickle.dumps(work)
        for job in jobs:
            pickle.loads(sent)(pickle.loads(pickle.dumps(job)))  # a worker ended, and another one does it again
            yield pickle.loads(pickle.dumps(pickle.loads(sent)(pickle.loads(pickle.dumps(job)))))


def contents(trace: Path) -> dict[str, Any]:
    """The bytes of each table, and `trace.json` but for when it was made."""
    document = json.loads((trace / "trace.json").read_text())
    del document["created_ns"]
    return {path.name: path.read_bytes() for path in trace.glob("*.parquet")} | {"trace.json": document}


def assert_same(tmp_path: Path, files: Sequence[Path], options: AnalysisOptions, keys: Sequence[Path] = ()) -> Path:
    """Analyse captures here, and in other processes; returns the trace."""
    sources, shared = host_sources(list(map(str, files))), tmp_path / "shared"
    shared.mkdir()
    analyse(sources, str(tmp_path / "here"), options=options)
    there = SharedPlaces(str(tmp_path / "there"), shared, PicklingEngine(), keys)
    analyse(sources, str(tmp_path / "there"), options=options, places=there)
    expected, found = contents(tmp_path / "here"), contents(tmp_path / "there")
    assert found.keys() == expected.keys()
    assert [name for name, content in expected.items() if found[name] != content] == []
    return tmp_path / "there"


def lossy_captures(folder: Path) -> list[Path]:
    """Of three hosts, one with another clock, with losses."""
    stations = [Station("a", "10.0.0.1"), Station("b", "10.0.0.2", Clock(3_000_000)), Station("c", "10.0.0.3")]
    net = Network(stations, NetworkPath(loss=0.02), 5)
    for number in range(12):
        net.connect(*("ab", "bc", "ca")[number % 3], 40_000 + number, 500, 20_000, at_ns=number * 20_000_000)
    net.run()
    return net.write(folder)


@pytest.mark.parametrize("bits", [0, 4])
def test_the_bundled_capture(tmp_path: Path, bits: int) -> None:
    assert_same(tmp_path, [BUNDLED], AnalysisOptions(partition_bits=bits))


def test_losses_and_clocks_of_three_hosts(tmp_path: Path) -> None:
    assert_same(tmp_path, lossy_captures(tmp_path), PARTS)


def test_addresses_translated_on_the_way(tmp_path: Path) -> None:
    """Packets of a connection are in two partitions until the handshakes of all hosts are compared."""
    stations = [Station("client", "10.0.0.1"), Station("server", "10.0.0.2")]
    net = Network(stations, NetworkPath(), 3)
    for number in range(4):
        net.connect("client", "server", 40_000 + number, 500, 9_000, at_ns=number * 50_000_000)
    net.run()
    client, server = net.write(tmp_path)
    server.write_bytes(server.read_bytes().replace(inet_aton("10.0.0.1"), inet_aton("10.9.9.9")))
    assert_same(tmp_path, [client, server], AnalysisOptions(partition_bits=4))


def test_a_capture_of_two_hosts_and_one_of_containers(tmp_path: Path) -> None:
    both = merge_captures(write_captures(tmp_path / "net", Clock(2_000_000)), tmp_path / "all.pcapng", ("eth0", "ens3"))
    node = tmp_path / "node.pcap"
    node.write_bytes(cooked_capture(on_the_node()))
    assert_same(tmp_path, [both, node], PARTS)


@pytest.mark.parametrize("where", ["a key log", "a capture"])
@needs("openssl", "openssl")
def test_secrets_of_tls(tmp_path: Path, where: str) -> None:
    log = tmp_path / "keys"
    packets = tls_captures.encrypted_packets(
        conversation(), tls_captures.certificate(tmp_path), log, ssl.TLSVersion.TLSv1_3
    )
    files = tls_captures.write_pcaps(tmp_path, packets)
    logs = [log] if where == "a key log" else []
    if not logs:
        files[1] = tls_captures.with_secrets(files[1], log.read_bytes(), False)
    keys, _ = read_key_logs(logs)
    trace = assert_same(tmp_path, files, AnalysisOptions(partition_bits=1, keys=keys), logs)
    assert b"/item/3" in (trace / "exchanges.parquet").read_bytes(), "it was opened"


def test_steps_of_a_clock_in_evidence_that_is_thinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.clocks.evidence.MOST_HOPS", 500)
    stations = [Station("client", "10.0.0.1"), Station("server", "10.0.0.2", SteppedClock())]
    net = Network(stations, NetworkPath(), 3)
    for number in range(40):
        net.connect("client", "server", 40_000 + number, 500, 20_000, at_ns=number * 20_000_000)
    net.run()
    looks: list[int] = []

    def look_near(ways: Ways, between: Frames) -> Ways:
        looks.append(len(between))
        return hops_near(ways, between)

    monkeypatch.setattr(match_stage, "hops_near", look_near)
    trace = assert_same(tmp_path, net.write(tmp_path), PARTS)
    assert looks, "partitions were looked at again"
    assert Trace(str(trace)).read("clocks")["host"].to_pylist().count("server") == 2


def test_a_connection_that_is_too_long_is_cut_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (captures, host_capture):
        monkeypatch.setattr(module, "LAST_BITS", 4)
    traffic_shapes.bulk(tmp_path, 6_000)
    options = AnalysisOptions(limits=InputLimits(in_partition=1_000))
    trace = assert_same(tmp_path, sorted(tmp_path.glob("*.pcap")), options)
    assert "connection_cut" in (trace / "trace.json").read_text()


def test_captures_without_tcp_are_refused_alike(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pcap"
    empty.write_bytes((BUNDLED / "client.pcapng").read_bytes()[:28])
    with pytest.raises(InputError) as here:
        analyse(host_sources([str(empty)]), str(tmp_path / "here"))
    there = SharedPlaces(str(tmp_path / "there"), tmp_path, PicklingEngine())
    with pytest.raises(InputError) as elsewhere:
        analyse(host_sources([str(empty)]), str(tmp_path / "there"), places=there)
    assert str(elsewhere.value) == str(here.value)
