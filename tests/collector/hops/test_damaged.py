"""Which of the packets that came again were damaged: by what others at that host look like."""

from collections.abc import Iterable, Sequence

import polars as pl
import pytest
from scapy.layers.inet import IP, TCP
from scapy.packet import Raw

from collector.decode.checksums import Checksum, tcp_checksum
from collector.hops.damaged import SUSPECTS, find_damaged

RAW = 101
GOOD = bytes(IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=1, dport=2) / Raw(b"x" * 10))
BAD = GOOD[:-1] + b"y"


@pytest.mark.parametrize(
    ("others", "found"),
    [([GOOD] * 10, [5]), ([GOOD] * 9 + [BAD], [5]), ([GOOD] * 6 + [BAD] * 4, []), ([BAD] * 10, []), ([GOOD] * 3, [])],
    ids=["all others are right", "nearly all", "many are not", "none is", "too few to know"],
)
def test_a_checksum_is_judged_where_most_others_are_right(others: list[bytes], found: list[int]) -> None:
    packets = {4: GOOD, 5: BAD, **{10 + number: data for number, data in enumerate(others)}}

    def look(host: str, frames: Sequence[int]) -> Iterable[tuple[int, Checksum]]:
        assert host == "b"
        return [(frame, tcp_checksum(RAW, packets[frame])) for frame in frames]

    rows = [(1, "b", frame, 9 if frame in (4, 5) else None) for frame in packets]
    wrong = find_damaged([pl.DataFrame(rows, SUSPECTS, orient="row")], look)
    assert wrong["receive_frame"].to_list() == found
