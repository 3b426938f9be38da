"""What a trace says of its own pairing: sums, clock steps, translated addresses, in words."""

from dataclasses import dataclass
from pathlib import Path
from socket import inet_aton

import pytest

from collector.analysis import HostSource, analyse
from collector.hops.quality_summary import Translation, clock_steps, connection_name, read_pairing, trouble_words
from collector.trace.reading import Trace
from testkit.netsim import Clock, Network, NetworkPath, Station
from testkit.tables import table
from tests.helpers.script_traces import write_script_trace

STEP_NS = 1_000_000_000


@dataclass(frozen=True)
class Stepped(Clock):
    """Set forwards by a second, 100 ms after the start."""

    def read(self, at_ns: int) -> int:
        return super().read(at_ns) + (STEP_NS if at_ns >= 100_000_000 else 0)


def capture_sources(folder: Path, clock: Clock) -> list[HostSource]:
    """A client that talks to a proxy and to a server of that clock."""
    stations = [Station("client", "10.0.0.1"), Station("proxy", "10.0.0.2"), Station("server", "10.0.0.3", clock)]
    net = Network(stations, NetworkPath(), 3)
    for number in range(8):
        net.connect("client", "proxy", 40_000 + number, 500, 40_000, at_ns=number * 25_000_000)
        net.connect("client", "server", 41_000 + number, 500, 40_000, at_ns=number * 25_000_000)
        net.connect("proxy", "server", 42_000 + number, 500, 4_000, at_ns=number * 25_000_000)
    net.run()
    return [HostSource(None, (file,)) for file in net.write(folder)]


def test_a_stepped_clock_is_reported_with_its_size(tmp_path: Path) -> None:
    analyse(capture_sources(tmp_path, Stepped()), str(tmp_path / "trace"))
    pairing = read_pairing(Trace(str(tmp_path / "trace")))
    (step,) = pairing.clock_steps
    assert step.host == "server"
    assert step.uncertainty_ns is not None
    assert abs(step.step_ns - STEP_NS) <= step.uncertainty_ns < 1_000_000
    assert step.words.startswith("clock of server stepped by +1.000 s ± ")
    assert pairing.hops_words.endswith("none received before it was sent")
    assert pairing.words == f"100 % of {pairing.total.bytes:,} bytes paired"
    assert pairing.notes == (step.words,)


def test_a_clock_that_was_not_set_has_no_step(tmp_path: Path) -> None:
    analyse(capture_sources(tmp_path, Clock(7_000_000)), str(tmp_path / "trace"))
    assert read_pairing(Trace(str(tmp_path / "trace"))).notes == ()


def test_a_step_is_what_the_drift_before_it_does_not_explain() -> None:
    before = {"host": "a", "from_host_ns": 10**9, "to_host_ns": 11 * 10**9, "from_frame": 1, "skew_ppb": 1000}
    after = {"host": "a", "from_host_ns": 11 * 10**9, "to_host_ns": 12 * 10**9, "from_frame": 77, "skew_ppb": 0}
    rows = [after | {"offset_ns": -40_000, "uncertainty_ns": 30}, before | {"offset_ns": 50, "uncertainty_ns": 20}]
    (step,) = clock_steps(table("clocks", rows))
    assert (step.frame, step.step_ns, step.uncertainty_ns) == (77, -50_050, 50)
    assert step.at_trace_ns == 11 * 10**9 + 40_000
    assert step.words == "clock of a stepped by -50.0 µs ± 50 ns before its frame 77"


def test_translated_addresses_are_reported_once_with_their_count(tmp_path: Path) -> None:
    sources = capture_sources(tmp_path, Clock())
    (server,) = (source.files[0] for source in sources if source.files[0].stem == "server")
    server.write_bytes(server.read_bytes().replace(inet_aton("10.0.0.1"), inet_aton("10.9.9.9")))
    analyse(sources, str(tmp_path / "trace"))
    (translation,) = read_pairing(Trace(str(tmp_path / "trace"))).translations
    assert translation == Translation("10.0.0.1", "10.0.0.3", 80, "10.9.9.9", "10.0.0.3", 80, 8)


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        (("10.0.0.1", "10.1.0.7", 8080), "10.0.0.5:80 is 10.1.0.7:8080 at the server"),
        (("10.9.9.9", "10.0.0.5", 80), "towards 10.0.0.5:80, the client 10.0.0.1 is 10.9.9.9 there"),
        (
            ("10.9.9.9", "10.1.0.7", 80),
            "10.0.0.5:80 is 10.1.0.7:80 at the server, the client 10.0.0.1 is 10.9.9.9 there",
        ),
        (("10.0.0.1", "10.0.0.5", 80), "towards 10.0.0.5:80, the ports of the client 10.0.0.1 are others there"),
    ],
)
def test_a_translation_says_which_end_is_another(inner: tuple[str, str, int], words: str) -> None:
    translation = Translation("10.0.0.1", "10.0.0.5", 80, *inner, connections_count=1)
    assert translation.words == f"translated: {words} (1 connection)"


def test_trouble_is_named(tmp_path: Path) -> None:
    script = """
        client:40000 > proxy:8080
            0 > 0:100 lost
          200 > 0:100 #2 late=-5
          300 < 0:50 unseen
    """
    write_script_trace(str(tmp_path / "trace"), script)
    pairing = read_pairing(Trace(str(tmp_path / "trace")))
    (worst,) = pairing.worst_connections
    assert connection_name(worst) == "client 10.0.0.1:40000 → proxy 10.0.0.2:8080"
    assert trouble_words(worst.counts) == "1 sent again, 1 lost, 1 dropped, 1 early of 3 hops"
    assert pairing.words == "66.66 % of 150 bytes paired"
    assert pairing.hops_words == "3 hops, 1 of them received before sent"
    assert read_pairing(Trace(str(tmp_path / "trace")), 0).worst_connections == ()
    assert read_pairing(Trace(str(tmp_path / "trace")), 0).imperfect_connections_count == 1
