"""Names of hosts and segments, numbering, and what becomes of files that a killed capture left."""

import struct
from pathlib import Path

import pytest

from tracer.errors import InputError
from tracer.segments import check_name, next_number, rescue_partials, segment_name, segment_number, segments

SECTION = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
PACKET = struct.pack("<IIIIIII4sI", 6, 36, 0, 0, 0, 4, 4, b"data", 36)


@pytest.mark.parametrize("name", ["proxy", "a", "h-1.rack_2", "A" * 64])
def test_names_that_are_fit_to_be_a_file_name(name: str) -> None:
    assert check_name("host", name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "a/b", "../a", "a\\b", "a\0", "a b", "-a", "a-", "a.", "A" * 65, "ä", "a\n"]
)
def test_names_that_could_lead_elsewhere(name: str) -> None:
    with pytest.raises(InputError, match="is no name for a host"):
        check_name("host", name)


def test_segment_names_are_read_back() -> None:
    assert segment_name("proxy", 7) == "proxy-000007.pcapng"
    assert segment_number("proxy", "proxy-000007.pcapng") == 7
    assert segment_number("proxy", "proxy-000007.pcapng.partial") == 7
    assert segment_number("proxy", segment_name("proxy", 12_345_678)) == 12_345_678
    for other in ["proxy-7.pcapng", "proxy-2-000007.pcapng", "prox-000007.pcapng", "proxy-000007.pcap", "x"]:
        assert segment_number("proxy", other) is None


def test_numbers_go_on_after_all_segments_whole_or_partial(tmp_path: Path) -> None:
    assert next_number(tmp_path, "proxy") == 1
    for name in ["proxy-000002.pcapng", "proxy-000010.pcapng", "proxy-000011.pcapng.partial", "client-000099.pcapng"]:
        (tmp_path / name).touch()
    assert next_number(tmp_path, "proxy") == 12
    assert [number for number, _ in segments(tmp_path, "proxy")] == [2, 10]


@pytest.mark.parametrize("cut_bytes", range(len(PACKET)))
def test_a_partial_file_keeps_its_whole_blocks(tmp_path: Path, cut_bytes: int) -> None:
    whole = SECTION + PACKET
    (tmp_path / "proxy-000001.pcapng.partial").write_bytes(whole + PACKET[:cut_bytes])
    assert rescue_partials(tmp_path, "proxy") == [
        "kept 1 packets of proxy-000001.pcapng, left by an interrupted capture"
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["proxy-000001.pcapng"]
    assert (tmp_path / "proxy-000001.pcapng").read_bytes() == whole


@pytest.mark.parametrize("content", [b"", SECTION, SECTION + PACKET[:-1], b"no capture at all, rather a text"])
def test_a_partial_file_without_a_packet_is_removed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "proxy-000001.pcapng.partial").write_bytes(content)
    (line,) = rescue_partials(tmp_path, "proxy")
    assert "removed proxy-000001.pcapng.partial" in line
    assert list(tmp_path.iterdir()) == []


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "client-000001.pcapng.partial").write_bytes(SECTION)
    assert rescue_partials(tmp_path, "proxy") == []
    assert [path.name for path in tmp_path.iterdir()] == ["client-000001.pcapng.partial"]
