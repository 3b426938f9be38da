"""The Content-Type of a large object carries its size, for listings: `text/plain;swift_bytes=10485760`.

Only servers see the parameter; clients may not set it.

Source: Swift, swift.common.utils (`extract_swift_bytes`, `override_bytes_from_content_type`).
"""

_PARAMETER = "swift_bytes"


def split_swift_bytes(content_type: str) -> tuple[str, int | None]:
    """The type as clients see it, and the size; None if it has none."""
    if _PARAMETER not in content_type:
        return content_type, None
    parts, size = [], None
    for part in content_type.split(";"):
        name, _, value = part.strip().partition("=")
        if name == _PARAMETER and value.isdigit():
            size = int(value)
        else:
            parts.append(part)
    return ";".join(parts), size


def with_swift_bytes(content_type: str, size: int) -> str:
    """The type with a size."""
    return f"{split_swift_bytes(content_type)[0]};{_PARAMETER}={size}"


def with_swift_bytes_of(content_type: str, other: str) -> str:
    """The type with the size that another one carries, if it does."""
    size = split_swift_bytes(other)[1]
    return content_type if size is None else with_swift_bytes(content_type, size)
