"""What the clients wrote, and what the store must therefore hold.

An object belongs to one client, which does one operation on it after the other, so its history is a list. A write with
an answer of success is acknowledged: from then on the object must be that version. A write without one (no answer, 5xx)
may or may not have been done, and may be done late; the object is then never written again, and may be either.

A version's bytes follow from the run's seed, the object's name and the version's number, so nothing has to be kept.
"""

import dataclasses
import hashlib
import random

DELETED = -1


@dataclasses.dataclass
class History:
    """One object. Versions count from 0; `DELETED` stands for a deletion."""

    name: str
    seed: int
    sizes: list[int] = dataclasses.field(default_factory=list)
    acknowledged: int | None = None  # None: nothing was ever acknowledged
    uncertain: int | None = None  # a last write whose fate is unknown
    in_parts: set[int] = dataclasses.field(default_factory=set)  # versions that were written as multipart uploads

    @property
    def is_retired(self) -> bool:
        """Whether nothing more is to be written to it."""
        return self.uncertain is not None

    def next_body(self, size: int) -> tuple[int, bytes]:
        """A new version."""
        self.sizes.append(size)
        return len(self.sizes) - 1, self.body(len(self.sizes) - 1)

    def body(self, version: int) -> bytes:
        """The bytes of a version."""
        return random.Random(f"{self.seed}/{self.name}/{version}").randbytes(self.sizes[version])

    def allowed_etags(self) -> set[str]:
        """ETags of what may be stored now; "" for nothing."""
        base = DELETED if self.acknowledged is None else self.acknowledged
        versions = {base} | ({self.uncertain} if self.uncertain is not None else set())
        return {self.etag(version) for version in versions}

    def etag(self, version: int) -> str:
        """ETag of a version: the MD5 of its bytes, or that of a multipart upload; "" for a deletion."""
        if version == DELETED:
            return ""
        md5 = hashlib.md5(self.body(version), usedforsecurity=False).hexdigest()
        return in_parts_etag(md5) if version in self.in_parts else md5

    def version_of(self, etag: str) -> int | None:
        """Which version has this ETag; None if none has."""
        return next((version for version in range(len(self.sizes)) if self.etag(version) == etag), None)


def in_parts_etag(md5: str) -> str:
    """The ETag of an object that a multipart upload of one part made; `md5` is the part's."""
    return f"{hashlib.md5(bytes.fromhex(md5), usedforsecurity=False).hexdigest()}-1"
