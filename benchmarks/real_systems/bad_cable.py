"""A cable that damages or loses some frames: `python -m benchmarks.real_systems.bad_cable INNER OUTER flip|lose SHARE`.

Of the long frames that go inward (to the host) this share; damage is a bit of the last byte. All else is as in
`storage_cluster.faults.relay`.
"""

import random
import sys

from storage_cluster.faults import relay

LEAST_LEN = 300
_what, _share = sys.argv[3], float(sys.argv[4])
_random = random.Random(1)
_Lane = relay.Lane


class _Bad(_Lane):
    def add(self, frame: bytes, arrival_ns: int) -> None:
        if len(frame) >= LEAST_LEN and _random.random() < _share:
            if _what == "lose":
                return
            frame = frame[:-1] + bytes([frame[-1] ^ 1])
        super().add(frame, arrival_ns)


if __name__ == "__main__":
    relay.Lane = _Bad  # type: ignore[misc]
    sys.argv = sys.argv[:3]
    relay.main()
