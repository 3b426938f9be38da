"""Checksums of objects beside their ETags: CRC32, CRC32C, CRC64NVME, SHA-1, SHA-256.

A client gives one with a header, or behind the body (`payload`); the gateway computes it and refuses what differs. It
is kept in the object's metadata. For a multipart upload it is either that of the whole object, which for a CRC follows
from those of the parts, or composite: the checksum of the parts' checksums, with their number behind it.

Source: Amazon S3 user guide, "Checking object integrity in Amazon S3".
"""

import base64
import binascii
import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence

from awscrt import checksums as crc

from storage_cluster.servers.s3.errors import S3Error

HEADER_PREFIX = "x-amz-checksum-"
STORED = "X-Object-Sysmeta-S3-Checksum"
_Update = Callable[[bytes, int], int]
_Combine = Callable[[int, int, int], int]
_CRCS: dict[str, tuple[_Update, _Combine, int]] = {
    "CRC32": (crc.crc32, crc.combine_crc32, 4),
    "CRC32C": (crc.crc32c, crc.combine_crc32c, 4),
    "CRC64NVME": (crc.crc64nvme, crc.combine_crc64nvme, 8),
}
_HASHES = {"SHA1": hashlib.sha1, "SHA256": hashlib.sha256}
ALGORITHMS = (*_CRCS, *_HASHES)
FULL_OBJECT, COMPOSITE = "FULL_OBJECT", "COMPOSITE"


class RunningChecksum:
    """The checksum of bytes as they pass."""

    def __init__(self, algorithm: str) -> None:
        self.algorithm = algorithm
        self._crc = 0
        self._hash = _HASHES[algorithm](usedforsecurity=False) if algorithm in _HASHES else None

    def update(self, data: bytes) -> None:
        """Take in more bytes."""
        if self._hash is not None:
            self._hash.update(data)
        else:
            self._crc = _CRCS[self.algorithm][0](data, self._crc)

    @property
    def text(self) -> str:
        """In base64, as headers have it."""
        if self._hash is not None:
            return base64.b64encode(self._hash.digest()).decode()
        return _crc_text(self._crc, self.algorithm)


@dataclasses.dataclass(frozen=True)
class Checksum:
    """An object's checksum."""

    algorithm: str
    text: str
    kind: str = FULL_OBJECT

    @property
    def header(self) -> str:
        """The header that carries it."""
        return header_of(self.algorithm)

    @property
    def element_name(self) -> str:
        """The element of documents that carries it."""
        return f"Checksum{self.algorithm}"

    def metadata(self) -> dict[str, str]:
        """As metadata of the object."""
        return {STORED: f"{self.algorithm} {self.kind} {self.text}"}

    def response_headers(self) -> dict[str, str]:
        """As headers of a response."""
        return {self.header: self.text, "x-amz-checksum-type": self.kind}


def stored_checksum(headers: Mapping[str, str]) -> Checksum | None:
    """The checksum in an object's metadata."""
    if STORED not in headers:
        return None
    algorithm, kind, text = headers[STORED].split(" ")
    return Checksum(algorithm, text, kind)


def header_of(algorithm: str) -> str:
    """The header of an algorithm."""
    return HEADER_PREFIX + algorithm.lower()


def checksum_in_headers(headers: Mapping[str, str]) -> Checksum | None:
    """The checksum that a request gives of its body. Raises: S3Error for one that none can be, or for two."""
    given = [algorithm for algorithm in ALGORITHMS if header_of(algorithm) in headers]
    if len(given) > 1:
        raise S3Error(
            "InvalidRequest", "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed."
        )
    if not given:
        return None
    text = headers[header_of(given[0])]
    check_text(given[0], text.partition("-")[0])
    return Checksum(given[0], text)


def wanted_algorithm(headers: Mapping[str, str], *names: str) -> str | None:
    """The algorithm that a header names. Raises: S3Error for another than those above."""
    for name in names or ("x-amz-sdk-checksum-algorithm", "x-amz-checksum-algorithm"):
        if name in headers:
            algorithm = headers[name].upper()
            if algorithm not in ALGORITHMS:
                raise S3Error(
                    "InvalidRequest",
                    "Checksum algorithm provided is unsupported; there are: CRC32, CRC32C, CRC64NVME, SHA1, SHA256",
                )
            return algorithm
    return None


def check_text(algorithm: str, text: str) -> None:
    """Raises: S3Error (InvalidRequest) if a text is no checksum of that kind."""
    try:
        length = len(base64.b64decode(text, validate=True))
    except (ValueError, binascii.Error):
        length = -1
    wanted = _CRCS[algorithm][2] if algorithm in _CRCS else _HASHES[algorithm]().digest_size
    if length != wanted:
        raise S3Error("InvalidRequest", f"Value for {header_of(algorithm)} header is invalid.")


def type_for(algorithm: str, asked: str | None) -> str:
    """Whether a multipart upload's checksum is of the whole or composite. Raises: S3Error where that cannot be."""
    usual = FULL_OBJECT if algorithm == "CRC64NVME" else COMPOSITE
    kind = (asked or usual).upper()
    possible = {
        "CRC64NVME": (FULL_OBJECT,),
        "CRC32": (FULL_OBJECT, COMPOSITE),
        "CRC32C": (FULL_OBJECT, COMPOSITE),
    }.get(algorithm, (COMPOSITE,))
    if kind not in possible:
        raise S3Error(
            "InvalidRequest",
            f"The {kind} checksum type cannot be used with the {algorithm.lower()} checksum algorithm.",
        )
    return kind


def checksum_of_parts(algorithm: str, kind: str, parts: Sequence[tuple[str, int]]) -> Checksum:
    """The checksum of an object from its parts'. `parts`: checksum in base64 and length in bytes of each."""
    if kind == COMPOSITE:
        whole = RunningChecksum(algorithm)
        for text, _ in parts:
            whole.update(base64.b64decode(text))
        return Checksum(algorithm, f"{whole.text}-{len(parts)}", COMPOSITE)
    combine = _CRCS[algorithm][1]
    value = 0
    for text, length in parts:
        value = combine(value, int.from_bytes(base64.b64decode(text), "big"), length)
    return Checksum(algorithm, _crc_text(value, algorithm), FULL_OBJECT)


def _crc_text(value: int, algorithm: str) -> str:
    return base64.b64encode(value.to_bytes(_CRCS[algorithm][2], "big")).decode()
