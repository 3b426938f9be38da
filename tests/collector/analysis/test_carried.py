"""What is known of a connection goes from a period to the next ones: what its messages depend on, and who serves."""

import ssl
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
import pytest

from collector.analysis import AnalysisOptions, analyse, period
from collector.analysis.period import ConnectionsCarried, options_of_period
from collector.analysis.places import Places, SharedPlaces
from collector.decode import captures, host_capture, time_range
from collector.decode.captures import NoPacketsError
from collector.decode.host_capture import HostSource
from collector.decode.host_identity import sources_by_name
from collector.decode.sources import host_sources
from collector.decode.tls_keys import read_key_logs
from collector.execution.progress import CountedProgress, Silent, Stage
from collector.trace.reading import Trace
from tests.collector.analysis.test_shared_places import PicklingEngine, contents
from tests.helpers import tls_captures
from tests.helpers.tls_captures import START_NS, Message, Packet, write_pcaps

COUNT = 24
PERIOD_NS, MARGIN_NS = 3_000_000, 1_000_000
SHOWN = ("protocol", "method", "target", "status", "client_host", "server_host")


@pytest.fixture(autouse=True)
def short_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(period, "MARGIN_NS", MARGIN_NS)


def rows_shown(trace: Path) -> list[tuple[object, ...]]:
    exchanges = pl.DataFrame(Trace(str(trace)).read("exchanges"))
    return exchanges.with_columns(pl.col(pl.Categorical).cast(pl.String)).select(SHOWN).rows()


def by_period(
    sources: Sequence[HostSource],
    place: Path,
    options: AnalysisOptions,
    carried: ConnectionsCarried | None,
    places: Callable[[str], Places | None] = lambda _: None,
) -> list[list[tuple[object, ...]]]:
    """What the traces of successive periods show. Arguments: `carried`, None to carry nothing on; `places`, where the
    trace of a folder is made."""
    found = []
    for number in range(200):
        each = (START_NS + number * PERIOD_NS, START_NS + (number + 1) * PERIOD_NS)
        now = options_of_period(options, each) if carried is None else carried.options(options, each)
        part = place / f"{number}"
        try:
            analyse(sources, str(part), options=now, places=places(str(part)))
        except NoPacketsError:
            break
        if carried is not None:
            carried.note_servers(Trace(str(part)))
            carried.go_on()
        found.append(rows_shown(part))
    return found


def rotated_captures(folder: Path, packets: list[Packet]) -> list[HostSource]:
    """The captures of both hosts, each in two files."""
    files: dict[str, list[Path]] = {}
    middle = len(packets) // 2
    for name, some in (("a", packets[:middle]), ("b", packets[middle:])):
        (folder / name).mkdir()
        for file in write_pcaps(folder / name, some):
            files.setdefault(file.stem, []).append(file)
    return [HostSource(host, tuple(of_host)) for host, of_host in files.items()]


def web() -> list[Message]:
    said = []
    for number in range(COUNT):
        said.append((True, f"GET /{number} HTTP/1.1\r\nHost: shop\r\n\r\n".encode()))
        said.append((False, b"HTTP/1.1 204 OK\r\n\r\n"))
    return said


def prepared_statements() -> list[Message]:
    """PostgreSQL: a statement that is prepared once, and executed often."""

    def message(kind: bytes, body: bytes) -> bytes:
        return kind + struct.pack("!I", 4 + len(body)) + body

    def ready() -> bytes:
        return message(b"Z", b"I")

    start = struct.pack("!II", 8 + len(b"user\0me\0\0"), 3 << 16) + b"user\0me\0\0"
    said = [(True, start), (False, message(b"R", bytes(4)) + ready())]
    prepare = message(b"P", b"s1\0SELECT name FROM people WHERE id = $1\0" + bytes(2)) + message(b"S", b"")
    said += [(True, prepare), (False, message(b"1", b"") + ready())]
    execute = message(b"B", b"\0s1\0" + bytes(6)) + message(b"E", b"\0" + bytes(4)) + message(b"S", b"")
    answer = message(b"2", b"") + message(b"C", b"SELECT 0\0") + ready()
    return [*said, *([(True, execute), (False, answer)] * COUNT)]


def header_tables() -> list[Message]:
    """HTTP/2: a path that is sent once, and then named by its place in the table of both ends (RFC 7541)."""

    def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
        return struct.pack("!I", len(body))[1:] + bytes((kind, flags)) + struct.pack("!I", stream) + body

    settings = frame(4, 0, 0, b"")
    said = [(True, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings), (False, settings)]
    for number in range(COUNT):
        path = b"\x44" + bytes((len(b"/shop.Basket"),)) + b"/shop.Basket" if not number else b"\xbe"
        said.append((True, frame(1, 5, 1 + 2 * number, b"\x83\x86" + path)))
        said.append((False, frame(1, 5, 1 + 2 * number, b"\x88")))
    return said


@pytest.mark.parametrize(("said", "in_files"), [(prepared_statements, 1), (header_tables, 2)])
def test_messages_that_depend_on_earlier_ones(said: Callable[[], list[Message]], in_files: int, tmp_path: Path) -> None:
    packets = tls_captures.in_the_clear(said())
    files = list(map(str, write_pcaps(tmp_path, packets)))
    sources = rotated_captures(tmp_path, packets) if in_files > 1 else host_sources(files)
    analyse(sources, str(tmp_path / "whole"))
    whole = rows_shown(tmp_path / "whole")
    assert len(whole) >= COUNT
    assert len({row[:3] for row in whole[2:]}) == 1, "the same is asked again and again"
    parts = by_period(sources, tmp_path / "with", AnalysisOptions(), ConnectionsCarried())
    assert len(parts) > 2
    assert [row for part in parts for row in part] == whole
    without = by_period(sources, tmp_path / "without", AnalysisOptions(), None)
    assert [row for part in without for row in part] != whole


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_connections_of_tls_stay_open(version: ssl.TLSVersion, tmp_path: Path) -> None:
    pem = tls_captures.certificate(tmp_path)
    packets = tls_captures.encrypted_packets(web(), pem, tmp_path / "keys", version)
    sources = host_sources(list(map(str, write_pcaps(tmp_path, packets))))
    keys, _ = read_key_logs([tmp_path / "keys"])
    options = AnalysisOptions(keys=keys)
    analyse(sources, str(tmp_path / "whole"), options=options)
    whole = rows_shown(tmp_path / "whole")
    assert len(whole) == COUNT
    parts = by_period(sources, tmp_path / "with", options, ConnectionsCarried())
    assert [row for part in parts for row in part] == whole
    without = by_period(sources, tmp_path / "without", options, None)
    assert [row for part in without for row in part] != whole


def test_keys_that_come_later_open_later_connections(tmp_path: Path) -> None:
    pem, sources, keys = tls_captures.certificate(tmp_path), [], []
    packets: list[Packet] = []
    for number in range(2):  # the second one begins in the second period
        log = tmp_path / f"keys{number}"
        of_one = tls_captures.encrypted_packets(web(), pem, log, ssl.TLSVersion.TLSv1_3, port=40_000 + number)
        packets += [(at + number * 2 * PERIOD_NS, *rest) for at, *rest in of_one]
        keys.append(log)
    sources = host_sources(list(map(str, write_pcaps(tmp_path, sorted(packets)))))
    carried, found = ConnectionsCarried(), []
    for number in range(10):
        each = (START_NS + number * PERIOD_NS, START_NS + (number + 1) * PERIOD_NS)
        known, _ = read_key_logs(keys[: 1 if number == 0 else 2])
        part = tmp_path / f"{number}"
        analyse(sources, str(part), options=carried.options(AnalysisOptions(keys=known), each))
        carried.note_servers(Trace(str(part)))
        carried.go_on()
        found += rows_shown(part)
        if max(at for at, *_ in packets) < each[1]:
            break
    assert sorted(row[2] for row in found) == sorted(f"/{number}" for number in range(COUNT) for _ in range(2))


def unread_turns() -> list[Message]:
    """Of a protocol that is not read, with a server that has the higher port."""
    return [(bool(number % 2 == 0), b"\xee" * 40) for number in range(2 * COUNT)]


def test_who_answered_a_handshake_is_the_server_later_on(tmp_path: Path) -> None:
    segments = tls_captures.Segments(port=2_000)
    segments.open()
    for from_client, data in unread_turns():
        segments.send(from_client, data)
    sources = host_sources(list(map(str, write_pcaps(tmp_path, segments.packets))))
    carried = ConnectionsCarried()
    parts = by_period(sources, tmp_path / "with", AnalysisOptions(), carried)
    assert len(parts) > 2
    assert {row[4:] for part in parts for row in part} == {("client", "server")}
    assert list(carried.servers) == [("10.4.0.2", 8443)]
    without = by_period(sources, tmp_path / "without", AnalysisOptions(), None)
    assert {row[4:] for row in without[-1]} == {("server", "client")}, "by the ports alone"


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("address", ["10.4.0.", "127.0.0."])
def test_another_connection_shows_who_serves(address: str, shared: bool, tmp_path: Path) -> None:
    """Also without any earlier period."""
    packets: list[Packet] = []
    for port, opens in ((2_000, False), (3_000, True)):
        segments = tls_captures.Segments(port=port)
        if opens:
            segments.open()
        for from_client, data in unread_turns():
            segments.send(from_client, data)
        packets += segments.packets
    host = bytes(map(int, f"{address}0".split(".")))[:3]
    packets = [(at, by, data.replace(b"\x0a\x04\x00", host)) for at, by, data in packets]
    sources = host_sources(list(map(str, write_pcaps(tmp_path, sorted(packets))))[: 1 if address == "127.0.0." else 2])
    place = str(tmp_path / "trace")
    places = SharedPlaces(place, tmp_path, PicklingEngine()) if shared else None
    analyse(sources, place, options=AnalysisOptions(partition_bits=3), places=places)
    connections = pl.DataFrame(Trace(place).read("connections"))
    assert sorted(connections.select("client_port", "server_port").rows()) == [(2_000, 8443), (3_000, 8443)]


class Forgetful(ConnectionsCarried):
    """As of a process that ends after each period: only who serves is known to the next one."""

    def go_on(self) -> None:
        self._following, self._followed = {}, None


@pytest.mark.parametrize("in_files", [1, 2])
@pytest.mark.parametrize("said", [prepared_statements, header_tables])
def test_a_process_that_starts_again_reads_what_was_before(
    said: Callable[[], list[Message]], in_files: int, tmp_path: Path
) -> None:
    packets = tls_captures.in_the_clear(said())
    files = list(map(str, write_pcaps(tmp_path, packets)))
    sources = rotated_captures(tmp_path, packets) if in_files > 1 else host_sources(files)
    expected = by_period(sources, tmp_path / "in one", AnalysisOptions(), ConnectionsCarried())
    assert len(expected) > 2
    found = by_period(sources, tmp_path / "again and again", AnalysisOptions(), Forgetful())
    assert found == expected


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_process_that_starts_again_opens_connections_of_tls(version: ssl.TLSVersion, tmp_path: Path) -> None:
    pem = tls_captures.certificate(tmp_path)
    packets = tls_captures.encrypted_packets(web(), pem, tmp_path / "keys", version)
    sources = host_sources(list(map(str, write_pcaps(tmp_path, packets))))
    options = AnalysisOptions(keys=read_key_logs([tmp_path / "keys"])[0])
    expected = by_period(sources, tmp_path / "in one", options, ConnectionsCarried())
    assert sum(map(len, expected)) == COUNT
    assert by_period(sources, tmp_path / "again and again", options, Forgetful()) == expected


def test_what_is_known_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str | None] = []

    def read_before(source: HostSource, how: host_capture.Reading, progress: CountedProgress) -> object:
        read.append(source.host)
        return real(source, how, progress)

    real = host_capture._read_before
    monkeypatch.setattr(host_capture, "_read_before", read_before)
    sources = host_sources(list(map(str, write_pcaps(tmp_path, tls_captures.in_the_clear(prepared_statements())))))
    assert len(by_period(sources, tmp_path / "periods", AnalysisOptions(), ConnectionsCarried())) > 2
    assert sorted(map(str, read)) == ["client", "server"], "before the first period alone"


def test_what_is_read_again_is_reported(tmp_path: Path) -> None:
    class Reported(Silent):
        stage: Stage | None = None
        read_count = 0

        def begin(self, stage: Stage) -> None:
            self.stage = stage

        def advance(self, packets: int, share: float) -> None:
            self.read_count += packets if self.stage == Stage.READ else 0

    packets = tls_captures.in_the_clear(prepared_statements())
    sources = host_sources(list(map(str, write_pcaps(tmp_path, packets))))
    last = max(stamp for stamp, _, _ in packets)
    options = Forgetful().options(AnalysisOptions(), (last, last + PERIOD_NS))
    reported = Reported()
    info = analyse(sources, str(tmp_path / "trace"), options=options, progress=reported)
    assert sum(host.packets_count for host in info.hosts) < reported.read_count / 2


@pytest.mark.parametrize("harm", [None, Path.unlink, lambda file: file.write_bytes(b"no capture")])
def test_segments_from_before_a_period_are_read_if_they_are_there(
    harm: Callable[[Path], object] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that is removed or damaged meanwhile is passed over."""
    packets = tls_captures.in_the_clear(prepared_statements())
    sources = []
    for host in ("client", "server"):
        files = []
        for number, cut in enumerate(range(0, len(packets), 8)):
            folder = tmp_path / f"{number}"
            folder.mkdir(exist_ok=True)
            written = {file.stem: file for file in write_pcaps(folder, packets[cut : cut + 8])}
            files.append(written[host].rename(tmp_path / f"{host}-{number + 1:06}.pcapng"))
        sources.append(HostSource(host, tuple(files)))
    expected = by_period(sources, tmp_path / "in one", AnalysisOptions(), ConnectionsCarried())
    last = max(number for number, rows in enumerate(expected) if rows)
    each = (START_NS + last * PERIOD_NS, START_NS + (last + 1) * PERIOD_NS)
    carried = ConnectionsCarried({("10.4.0.2", 8443): None})

    def remove(those: Sequence[HostSource]) -> object:
        for source in sources if harm else ():
            harm(source.files[0])
        return sources_by_name(those)

    monkeypatch.setattr(captures, "sources_by_name", remove)
    monkeypatch.setattr(time_range, "SLACK_NS", 0)
    analyse(sources, str(tmp_path / "t"), options=carried.options(AnalysisOptions(), each))
    found = rows_shown(tmp_path / "t")
    assert len(found) == len(expected[last])
    assert (found == expected[last]) == (harm is None)


@pytest.mark.parametrize("version", [None, ssl.TLSVersion.TLSv1_3])
def test_traces_that_other_processes_make_are_the_same(version: ssl.TLSVersion | None, tmp_path: Path) -> None:
    """Whatever is followed stays in this process."""
    packets, logs = tls_captures.in_the_clear(prepared_statements()), []
    if version is not None:
        logs = [tmp_path / "keys"]
        packets = tls_captures.encrypted_packets(web(), tls_captures.certificate(tmp_path), logs[0], version)
    options = AnalysisOptions(keys=read_key_logs(logs)[0])
    sources = host_sources(list(map(str, write_pcaps(tmp_path, packets))))
    here = by_period(sources, tmp_path / "here", options, ConnectionsCarried())
    shared = tmp_path / "shared"
    shared.mkdir()

    def elsewhere(place: str) -> Places:
        return SharedPlaces(place, shared, PicklingEngine(), logs)

    assert by_period(sources, tmp_path / "elsewhere", options, ConnectionsCarried(), elsewhere) == here
    assert len(here) > 2
    for number in range(len(here)):
        one, other = (contents(tmp_path / where / f"{number}") for where in ("here", "elsewhere"))
        assert one == other
