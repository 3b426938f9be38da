"""Parses booleans in headers and queries, and computes ETags."""

import hashlib

_TRUE_WORDS = frozenset(("true", "1", "yes", "on", "t", "y"))


def is_true(text: str | None) -> bool:
    """Whether a value means true."""
    return text is not None and text.strip().lower() in _TRUE_WORDS


def etag_of(data: bytes = b"") -> str:
    """The ETag of these bytes: their MD5, 32 hex digits."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
