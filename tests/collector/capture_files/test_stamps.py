"""Who stamped packets: what an agent states in a capture, added up by interface, and in the trace."""

from pathlib import Path

import pytest

from collector.analysis import analyse
from collector.capture_files.stamps import StampCounts, add_statements
from collector.clocks.alignment import NS_PER_S
from collector.decode.host_capture import HostSource
from collector.trace.reading import Trace

CAPTURES = Path("captures/swift-upload-1B")
NAME_RESOLUTION, COMMENT = 4, 1


def counts_of(*statements: str) -> dict[str, StampCounts]:
    known: dict[str, StampCounts] = {}
    add_statements(known, statements)
    return known


def statement(interface: str, hardware: int, software: int, error_ns: int) -> str:
    return f"twintap.stamps interface={interface} hardware={hardware} software={software} error_ns={error_ns}"


def test_counts_are_added_up_by_interface_and_the_widest_error_holds() -> None:
    found = counts_of(statement("eth0", 5, 2, 300), statement("eth1", 1, 0, 9), statement("eth0", 4, 1, 200))
    assert found == {"eth0": StampCounts(9, 3, 300), "eth1": StampCounts(1, 0, 9)}


@pytest.mark.parametrize(
    "wrong",
    [
        "twintap.stamps ", "twintap.stamps interface= hardware=1 software=1 error_ns=1",
        "twintap.stamps interface=e hardware=-1 software=1 error_ns=1", "twintap.stamps interface=e hardware=1",
        "twintap.stamps interface=e hardware=\u0661 software=1 error_ns=1", statement("e", 10**20, 1, 1),
        statement("e", 1, 1, int(2 * NS_PER_S)),
    ],
)  # fmt: skip
def test_what_is_no_statement_is_left_out(wrong: str) -> None:
    assert counts_of(wrong) == {}


def block_with_comment(text: str) -> bytes:
    """A Name Resolution Block without names, with a comment."""
    value = text.encode()
    options = COMMENT.to_bytes(2, "little") + len(value).to_bytes(2, "little") + value + bytes(-len(value) % 4)
    body = bytes(4) + options + bytes(4)
    length = (12 + len(body)).to_bytes(4, "little")
    return NAME_RESOLUTION.to_bytes(4, "little") + length + body + length


def test_the_trace_says_who_stamped_and_delays_are_wider_by_the_error_of_the_cards_clock(tmp_path: Path) -> None:
    files = sorted(CAPTURES.glob("*.pcapng"))
    plain, stated = tmp_path / "plain", tmp_path / "stated"
    analyse([HostSource(path.stem, (path,)) for path in files], str(plain))
    point = next(host for host in Trace(str(plain)).info().hosts if host.host == "proxy").points[0]
    assert (point.hardware_stamps_count, point.stamp_error_ns) == (None, None)
    copy = tmp_path / "proxy.pcapng"
    counts = statement(point.interface, 100, 20, 900)
    copy.write_bytes((CAPTURES / "proxy.pcapng").read_bytes() + block_with_comment(counts))
    analyse([HostSource(path.stem, (copy if path.stem == "proxy" else path,)) for path in files], str(stated))
    points = {host.host: host.points[0] for host in Trace(str(stated)).info().hosts}
    proxy = points["proxy"]
    assert (proxy.hardware_stamps_count, proxy.software_stamps_count, proxy.stamp_error_ns) == (100, 20, 900)
    assert points["client"].hardware_stamps_count is None
    for column in ("uncertainty_ns", "likely_error_ns"):
        before, after = (
            {row["send_frame"]: row[column] for row in Trace(str(trace)).read("hops").to_pylist() if to_proxy(row)}
            for trace in (plain, stated)
        )
        assert all(after[frame] > before[frame] for frame in before)


def to_proxy(row: dict[str, object]) -> bool:
    return (row["send_host"], row["receive_host"], row["state"]) == ("client", "proxy", "matched")
