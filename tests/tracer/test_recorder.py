"""The flight recorder on its host: a bounded history, the sample, and the windows that a collector asks for."""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click
import httpx
import pytest

from tests.tracer.test_connection_choice import SERVER, ethernet, frames_of, segment_of, tcp
from tests.tracer.test_shipping import FakeCollector
from tracer.commands.capture import parse_size
from tracer.connection_choice import parse_choice
from tracer.history import SEGMENT_NS, History
from tracer.private_files import link_file
from tracer.recorder import Recorder, WindowRequest, read_requests
from tracer.segments import segment_name
from tracer.shipping import Shipper
from tracer.spool import Spool, SpoolLimits

EARLIER, NOW = "20261125T225248-0a1b2c", "20261125T225300-ffffff"
NOW_NS = 1_795_647_180_000_000_000
"""The time in `NOW`."""
SECOND = 1_000_000_000
AHEAD_NS = 7 * SECOND
KIB = 1 << 10


@dataclass
class Host:
    """A host's folders, and a recorder whose clock is `AHEAD_NS` ahead of the collector's."""

    folder: Path
    limit_bytes: int = 1000 * KIB
    sample_ns: int = 0
    ahead: tuple[int, int] | None = (AHEAD_NS - 1000, AHEAD_NS + 1000)
    left: Sequence[str] = ()
    collector: FakeCollector = field(default_factory=FakeCollector)

    def __post_init__(self) -> None:
        self.now_ns = NOW_NS
        self.history = History(self.folder / "history" / "s1" / "db1" / NOW, self.limit_bytes)
        self.spool = Spool(self.folder / "spool" / "collector" / "s1" / "db1" / NOW)
        self.spool.open()
        self.recorder = Recorder(
            self.history,
            self.spool,
            self.sample_ns,
            lambda: self.ahead,
            is_sent=lambda session: session in self.left,
            clock=lambda: self.now_ns,
        )
        self.shipper = Shipper(
            self.collector.client(),
            [self.spool],
            SpoolLimits(1 << 30),
            lambda *_, **__: None,
            lambda: 0.0,
            recorder=self.recorder,
        )

    def write(self, number: int, end_ns: int, incarnation: str = NOW, size: int = 4 * KIB) -> Path:
        """A segment that was completed at a time of the host's clock, s after `NOW_NS`."""
        folder = self.history.folder.parent / incarnation
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / segment_name(f"db1-{incarnation}", number)
        path.write_bytes(os.urandom(size))
        os.utime(path, ns=(NOW_NS + end_ns, NOW_NS + end_ns))
        return path

    def puts(self) -> list[str]:
        return [path.removeprefix("/api/sessions/") for path in self.collector.puts]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host(tmp_path)
    made.history.open()
    return made


def place(session: str, number: int, incarnation: str = NOW) -> str:
    return f"{session}/hosts/db1/incarnations/{incarnation}/segments/{number}"


def window(name: str, from_s: float, to_s: float) -> WindowRequest:
    """A time by the collector's clock, s after what it shows at the host's `NOW_NS`."""
    zero = NOW_NS - AHEAD_NS
    return WindowRequest(name, zero + round(from_s * SECOND), zero + round(to_s * SECOND))


def test_the_oldest_segments_are_deleted_beyond_the_limit(tmp_path: Path) -> None:
    host = Host(tmp_path, limit_bytes=12 * KIB)
    host.write(1, -9 * SECOND, EARLIER)
    host.write(2, -8 * SECOND, EARLIER)
    host.history.open()
    assert host.history.span().from_ns == NOW_NS - 12 * SECOND, "as the name of the first agent says"
    for number in (1, 2):
        host.write(number, number * SECOND)
    host.recorder.step()
    assert [each.number for each in host.history.between(0, 1 << 62)] == [2, 1, 2]
    assert host.history.span().from_ns == NOW_NS - 8 * SECOND
    host.write(3, 3 * SECOND)
    host.recorder.step()
    span = host.history.span()
    assert (span.segments_count, span.size_bytes, span.from_ns) == (3, 12 * KIB, NOW_NS + SECOND)
    assert not (host.history.folder.parent / EARLIER).exists(), "nothing is in it any more"


def test_the_newest_segment_stays_however_low_the_limit_is(tmp_path: Path) -> None:
    host = Host(tmp_path, limit_bytes=1)
    host.history.open()
    host.write(1, 0)
    host.write(2, SECOND)
    host.recorder.step()
    assert [path.name[-13:] for path in host.history.folder.iterdir()] == ["000002.pcapng"]


def test_the_history_is_bounded_in_number_as_well_since_its_list_takes_memory(host: Host) -> None:
    host.history = History(host.history.folder, 1 << 30, limit_count=2)
    host.history.open()
    paths = [host.write(number, number * SECOND) for number in (1, 2, 3)]
    assert [each.path for each in host.history.note_new()] == paths
    assert host.history.trim() == 1
    assert not paths[0].exists()
    assert host.history.span().from_ns == NOW_NS + 2 * SECOND


def test_the_history_leaves_room_on_the_disk(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    free = iter([0, 1 << 30])
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": next(free)}))
    for number in (1, 2, 3):
        host.write(number, number * SECOND)
    host.recorder.step()
    assert [each.number for each in host.history.between(0, 1 << 62)] == [2, 3]


def test_what_a_killed_agent_was_writing_is_removed_if_it_holds_no_packet(host: Host) -> None:
    partial = host.write(1, 0, EARLIER)
    partial.rename(f"{partial}.partial")
    again = History(host.history.folder, 1 << 30)
    again.open()
    assert "removed" in again.notices[0]
    assert again.span().segments_count == 0


def test_a_history_of_which_the_beginning_was_deleted_by_an_earlier_agent_says_so(host: Host) -> None:
    host.write(7, -60 * SECOND, EARLIER)
    again = History(host.history.folder, 1 << 30)
    again.open()
    assert again.span().from_ns == NOW_NS - 60 * SECOND


@pytest.mark.parametrize(
    ("from_ns", "to_ns", "expected"),
    [
        (10 * SECOND, 12 * SECOND, [10, 11, 12, 13]),
        (10 * SECOND + 1, 10 * SECOND + 2, [11]),
        (0, SECOND // 2, [1, 2]),
        (99 * SECOND, 100 * SECOND, []),
    ],
)
def test_segments_are_found_by_when_they_were_completed(
    host: Host, from_ns: int, to_ns: int, expected: list[int]
) -> None:
    for number in range(1, 20):
        host.write(number, number * SECOND)
    host.history.note_new()
    assert [each.number for each in host.history.between(NOW_NS + from_ns, NOW_NS + to_ns)] == expected
    assert SEGMENT_NS == 1_500_000_000


def test_every_host_sends_the_same_seconds_of_the_collectors_clock(tmp_path: Path) -> None:
    host = Host(tmp_path, sample_ns=SECOND)
    host.history.open()
    for number in range(1, 31):
        host.write(number, number * SECOND)
    host.shipper.step()
    # The collector's clock shows x0 s when this host's shows (x0 + 7) s; a segment holds the second before its end.
    zero = (NOW_NS // SECOND) % 10
    expected = [number for number in range(1, 31) if (zero + number - 7) % 10 in (0, 1)]
    assert host.puts() == [place("s1", number) for number in expected]
    assert len(expected) == 6


@pytest.mark.parametrize(("sample_ns", "ahead"), [(0, (0, 0)), (SECOND, None)])
def test_without_a_sample_or_a_known_clock_nothing_is_sent(
    tmp_path: Path, sample_ns: int, ahead: tuple[int, int] | None
) -> None:
    host = Host(tmp_path, sample_ns=sample_ns, ahead=ahead)
    host.history.open()
    for number in range(1, 31):
        host.write(number, number * SECOND)
    if ahead is None:
        host.recorder.take([window("w1", 0, 10)])
    host.shipper.step()
    assert host.puts() == []
    assert host.recorder.answers() == ()


def test_a_window_is_sent_as_it_becomes_whole_and_closed(host: Host) -> None:
    for number in range(1, 11):
        host.write(number, number * SECOND)
    host.shipper.step()
    host.now_ns = NOW_NS + 10 * SECOND
    host.recorder.take([window("w1", 8, 12)])
    host.shipper.step()
    assert host.puts() == [place("w1", number) for number in (8, 9, 10)]
    assert not host.recorder.answers()[0].complete
    assert not host.collector.closed
    host.write(11, 11 * SECOND)
    host.write(12, 12 * SECOND)
    host.recorder.take([window("w1", 8, 12)])  # the collector asks until it has an answer
    host.now_ns = NOW_NS + 12 * SECOND + SEGMENT_NS + 1001
    host.shipper.step()
    assert host.puts()[3:] == [place("w1", 11), place("w1", 12)]
    (answer,) = host.recorder.answers()
    assert (answer.complete, answer.segments_count, answer.incarnations) == (True, 5, (NOW,))
    assert answer.has_from_ns == NOW_NS - AHEAD_NS
    assert [path.split("/")[3] for path in host.collector.closed] == ["w1"]
    assert [path.name for path in (host.folder / "spool" / "collector").iterdir()] == ["s1"], "nothing is left of it"
    assert len(list(host.history.folder.iterdir())) == 12, "the history keeps its segments"


def test_a_window_that_reaches_into_an_earlier_agents_time(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.write(5, -20 * SECOND, EARLIER)
    host.history.open()
    host.write(1, SECOND)
    host.now_ns = NOW_NS + 60 * SECOND
    host.recorder.take([window("w1", -30, 10)])
    host.shipper.step()
    assert host.puts() == [place("w1", 5, EARLIER), place("w1", 1)]
    assert host.recorder.answers()[0].incarnations == (EARLIER, NOW)
    assert len(host.collector.closed) == 2


def test_what_the_history_deletes_is_still_sent(tmp_path: Path) -> None:
    host = Host(tmp_path, limit_bytes=4 * KIB)
    host.history.open()
    host.collector.fault = lambda _: httpx.Response(507, json={"detail": "disk full"})
    host.write(1, SECOND)
    host.recorder.take([window("w1", 0, 2)])
    host.shipper.step()
    host.write(2, 20 * SECOND)
    host.collector.fault = None
    host.shipper._next_attempt = 0.0
    host.shipper.step()
    assert [each.number for each in host.history.between(0, 1 << 62)] == [2]
    assert host.puts()[-1] == place("w1", 1)


def test_a_window_that_an_earlier_agent_was_sending_is_not_sent_twice(tmp_path: Path) -> None:
    host = Host(tmp_path, left=("w1",))
    host.history.open()
    host.write(1, SECOND)
    host.recorder.take([window("w1", 0, 2)])
    host.shipper.step()
    assert host.puts() == []
    assert host.recorder.answers()[0].complete


def test_at_the_agents_end_windows_end(host: Host) -> None:
    host.write(1, SECOND)
    host.now_ns = NOW_NS + SECOND
    host.recorder.take([window("w1", 0, 3600)])
    host.shipper.step()
    host.write(2, 2 * SECOND)
    assert host.shipper.close()
    assert host.puts() == [place("w1", 1), place("w1", 2)]
    assert host.recorder.answers()[0].complete


@pytest.mark.parametrize(
    ("answer", "count"),
    [
        ({"received_ns": 1}, 0),
        ({"windows": [{"window": "w", "from_ns": 1, "to_ns": 2}]}, 1),
        ({"windows": [{"window": "w"}, {"window": "w", "from_ns": "x", "to_ns": 2}, 7]}, 0),
    ],
)
def test_what_is_not_understood_in_an_answer_is_ignored(answer: dict[str, object], count: int) -> None:
    assert len(read_requests(answer)) == count


def test_a_window_whose_name_leads_out_of_the_spool_is_ignored(host: Host) -> None:
    host.write(1, SECOND)
    host.recorder.take([WindowRequest("../../etc", 0, 1 << 62)])
    host.shipper.step()
    assert host.recorder.answers() == ()


def test_a_file_is_copied_where_it_cannot_be_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    source, folder = tmp_path / "a", tmp_path / "there"
    source.write_bytes(b"content")
    source.chmod(0o600)
    folder.mkdir()
    monkeypatch.setattr(os, "link", refuse)
    link_file(source, folder)
    assert (folder / "a").read_bytes() == b"content"
    assert stat.S_IMODE((folder / "a").stat().st_mode) == 0o600


@pytest.mark.parametrize(("text", "size"), [("2GiB", 2 << 30), ("64 MiB", 64 << 20), ("1.5gib", 3 << 29)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["2", "2GB", "63MiB", "-1GiB", "GiB", "1e3GiB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no size"):
        parse_size(text)


def test_of_a_window_of_connections_only_their_packets_are_sent(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, other = ((ethernet(tcp((f"10.0.0.{n}", 5), SERVER, b"id: req-000828" * (n == 1)))) for n in (1, 2))
    contents = (segment_of(chosen, other), segment_of(other), segment_of(other, ethernet(tcp(SERVER, ("10.0.0.1", 5)))))
    for number, content in enumerate(contents, 1):
        path = host.write(number, number * SECOND)
        path.write_bytes(content)
        os.utime(path, ns=(NOW_NS + number * SECOND,) * 2)
    monkeypatch.setattr("tracer.recorder.STEP_BYTES", 0)
    host.now_ns += 60 * SECOND
    host.recorder.step()
    host.recorder.take([replace(window("w", 0, 10), only=parse_choice("req-000828"))])
    parts = [part for _ in range(8) for part in host.recorder.step()]
    (answer,) = host.recorder.answers()
    assert (len(parts), answer.segments_count, answer.complete) == (1, 2, True)
    sent = [path.read_bytes() for _, path in parts[0].spool.waiting()]
    assert [frames_of(content) for content in sent] == [[1], [2]]
    assert answer.bytes_count == sum(map(len, sent))


def test_what_cannot_be_chosen_by_is_not_sent_at_all() -> None:
    one = {"window": "w", "from_ns": 1, "to_ns": 2}
    assert [each.only for each in read_requests({"windows": [one, one | {"only": ""}]})] == [None, None]
    assert read_requests({"windows": [one | {"only": "x"}]}) == []
    assert read_requests({"windows": [one | {"only": "req-000828"}]})[0].only == parse_choice("req-000828")
