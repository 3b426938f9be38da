"""Erasure coding: an object's bytes as fragments, of which any `data_fragments` give the bytes back.

    object   | segment 0 | segment 1 | … | last, shorter one |
    archive  | fragment of 0 | of 1 | … | of the last |              one for each index; a device stores one archive

A segment of `segment_bytes` is split into `data_fragments` parts, and `parity_fragments` more are computed from them
(Reed-Solomon over a Vandermonde matrix). A fragment has a header of 80 bytes with its index, the segment's length and
two checksums, of itself and of what follows; so a fragment that was damaged is known by itself, before anything is made
from it. An empty object has empty archives.

Invariants: archive_len(n) ≥ n / data_fragments; every whole segment's fragment has the same length, so that the bytes
of segment i begin at i * fragment_len(segment_bytes) of every archive.

Source: Swift, "Erasure Code Support"; the library is PyECLib with liberasurecode, whose fragments Swift's are.
"""

import dataclasses
import functools
import sys
from collections.abc import Mapping, Sequence

from pyeclib.ec_iface import ECDriver, ECDriverError

from storage_cluster.policies import ERASURE_CODING, Policies

HEADER_BYTES = 80
_SIZE_AT = 4
"""Where a fragment's header has the length of what follows it: four bytes in the machine's order."""
BACKEND = "liberasurecode_rs_vand"
"""The library's code; it needs no other library."""


class DamagedFragmentError(Exception):
    """What was read is no sound fragment, or too few of them are."""


@dataclasses.dataclass(frozen=True)
class Code:
    """How the objects of a policy are coded."""

    data_fragments: int
    parity_fragments: int
    segment_bytes: int

    @property
    def fragment_count(self) -> int:
        """How many fragments a segment has."""
        return self.data_fragments + self.parity_fragments

    @property
    def write_quorum(self) -> int:
        """How many fragments must be durable before a write is acknowledged: one more than a read needs.

        So whichever device is lost, what was acknowledged can be read.
        """
        return self.data_fragments + 1

    @property
    def scheme(self) -> str:
        """The code in words, as objects' metadata have it."""
        return f"{BACKEND} {self.data_fragments}+{self.parity_fragments}"

    @functools.cached_property
    def whole_fragment_len(self) -> int:
        """Bytes of a fragment of a whole segment."""
        return self.fragment_len(self.segment_bytes)

    def fragment_len(self, segment_len: int) -> int:
        """Bytes of a fragment of a segment of so many bytes."""
        if not segment_len:
            return 0
        found: int = self._driver.get_segment_info(segment_len, segment_len)["fragment_size"]
        return found

    def archive_len(self, size: int) -> int:
        """Bytes of an archive of an object of so many bytes."""
        whole, rest = divmod(size, self.segment_bytes)
        return whole * self.whole_fragment_len + self.fragment_len(rest)

    def segment_len(self, number: int, size: int) -> int:
        """Bytes of one segment of an object of `size` bytes."""
        return min(self.segment_bytes, size - number * self.segment_bytes)

    def encode(self, segment: bytes) -> list[bytes]:
        """The fragments of a segment, by index."""
        return self._driver.encode(segment) if segment else [b""] * self.fragment_count

    def decode(self, fragments: Sequence[bytes]) -> bytes:
        """The segment of these sound fragments of different indexes. Raises: DamagedFragmentError."""
        try:
            found = self._driver.decode(list(fragments))
        except ECDriverError as error:
            raise DamagedFragmentError(str(error)) from error
        assert isinstance(found, bytes)
        return found

    def rebuild(self, fragments: Sequence[bytes], index: int) -> bytes:
        """The fragment of that index, from sound ones of other indexes. Raises: DamagedFragmentError."""
        try:
            (found,) = self._driver.reconstruct(list(fragments), [index])
        except ECDriverError as error:
            raise DamagedFragmentError(str(error)) from error
        assert isinstance(found, bytes)
        return found

    def is_sound(self, fragment: bytes, index: int) -> bool:
        """Whether this is the undamaged fragment of that index; the library's own decoding does not look.

        The header's version of the library and its padding have no checksum; nothing depends on them.
        """
        payload_len = int.from_bytes(fragment[_SIZE_AT : _SIZE_AT + 4], sys.byteorder)
        if len(fragment) != HEADER_BYTES + payload_len:  # the library would read on
            return False
        try:
            found: Mapping[str, object] = self._driver.get_metadata(fragment, formatted=1)  # type: ignore[assignment]
        except (ECDriverError, ValueError):
            return False
        return found["index"] == index and not found["chksum_mismatch"]

    @property
    def _driver(self) -> ECDriver:
        return _driver(self.data_fragments, self.parity_fragments)


def code_of(policies: Policies, index: int) -> Code | None:
    """The code of a policy's objects; None if it keeps replicas, or is not known."""
    policy = policies.at(index)
    if policy is None or policy.kind != ERASURE_CODING:
        return None
    return Code(policy.data_fragments, policy.parity_fragments, policy.segment_bytes)


@functools.cache
def _driver(data_fragments: int, parity_fragments: int) -> ECDriver:
    return ECDriver(k=data_fragments, m=parity_fragments, ec_type=BACKEND, chksum_type="inline_crc32")
