"""A path between two interfaces that delays frames and loses some: `python -m testkit.lossy_path INNER OUTER [MARK…]`.

For each MARK the first frame that contains it is lost; for `lose=SHARE:LEAST:MOST` that share of the frames of so many
bytes; for `flip=SHARE:LEAST:MOST` a bit is flipped in the last byte of these.
All else is as in `storage_cluster.faults.relay`.
"""

import random
import sys

from storage_cluster.faults import relay

_SOME, _FLIPPED = "lose=", "flip="
_marks = [mark.encode() for mark in sys.argv[3:] if not mark.startswith((_SOME, _FLIPPED))]
_some = [mark.removeprefix(_SOME).split(":") for mark in sys.argv[3:] if mark.startswith(_SOME)]
_flipped = [mark.removeprefix(_FLIPPED).split(":") for mark in sys.argv[3:] if mark.startswith(_FLIPPED)]
_random = random.Random(1)
_Lane = relay.Lane


class _Losing(_Lane):
    def add(self, frame: bytes, arrival_ns: int) -> None:
        for mark in _marks:
            if mark in frame:
                _marks.remove(mark)
                return
        for share, least, most in _some:
            if int(least) <= len(frame) <= int(most) and _random.random() < float(share):
                return
        for share, least, most in _flipped:
            if int(least) <= len(frame) <= int(most) and _random.random() < float(share):
                frame = frame[:-1] + bytes([frame[-1] ^ 1])
        super().add(frame, arrival_ns)


if __name__ == "__main__":
    relay.Lane = _Losing  # type: ignore[misc]
    sys.argv = sys.argv[:3]
    relay.main()
