"""4-tuples that may be one connection behind a translation are brought together; all others are left alone."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from collector.decode.handshakes import Handshakes
from collector.decode.host_addresses import Traffic, common_ends


def syn_acks(isns: list[int], stamps: list[int], keys: list[int]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Fingerprints of SYN-ACKs with these ISNs and timestamps, and for each its key."""
    return np.array([*isns, *stamps], dtype=np.uint64), np.array([*keys, *keys], dtype=np.uint64)


@pytest.mark.parametrize("most_in_memory", [1 << 20, 0], ids=["in memory", "on disk"])
def test_only_what_shares_a_fingerprint_and_is_seen_once_is_joined(tmp_path: Path, most_in_memory: int) -> None:
    handshakes = Handshakes(tmp_path, most_in_memory)
    # 10 and 20: one connection, its addresses rewritten. 20 and 30 share timestamps, so all three hang together.
    # 40 is seen at both hosts. 50, 60, 70 share an ISN, which shows nothing. 80 is alone.
    handshakes.add(0, *syn_acks([1, 4, 5, 5, 8], [11, 44, 55, 66, 88], [10, 40, 50, 60, 80]))
    handshakes.add(1, *syn_acks([1, 3, 4, 5], [22, 22, 44, 77], [20, 30, 40, 70]))
    moves = handshakes.moves()
    handshakes.close()
    assert dict(zip(moves.keys.tolist(), moves.to.tolist(), strict=True)) == {20: 10, 30: 10}
    assert list(tmp_path.iterdir()) == []


def test_without_translation_nothing_moves() -> None:
    handshakes = Handshakes()
    assert len(handshakes.moves().keys) == 0
    for host in (0, 1):
        handshakes.add(host, *syn_acks([1, 2, 3], [7, 8, 9], [10, 20, 30]))
    assert len(handshakes.moves().keys) == 0


def test_the_end_that_all_pairs_share_is_the_hosts() -> None:
    assert common_ends(Traffic({(1, 2): 5, (3, 1): 2, (7, 7): 9})) == {1}
    assert common_ends(Traffic({(1, 2): 5, (3, 4): 2})) == set()
    assert common_ends(Traffic({})) == set()
