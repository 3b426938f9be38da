"""What a request asks for, in the words of its protocol: the name by which pages, reports and exports call it."""

from collections.abc import Mapping
from typing import Any

WORDED = ("method", "target", "operation", "bucket", "object_key", "part")
"""Columns of exchanges that `request_words` needs."""


def request_words(row: Mapping[str, Any]) -> str:
    """`UploadPart 3 of photos/cat.jpg`, `PUT /v1/a/c`, `SELECT … FROM orders`; "" if nothing shows it.

    Arguments: `row`, with the columns `WORDED`.
    """
    if not row["operation"]:
        return f"{row['method'] or ''} {row['target'] or ''}".strip()
    part = f"{row['part']} of" if row["part"] else ""
    place = "/".join(row[name] for name in ("bucket", "object_key") if row[name])
    return " ".join(filter(None, (row["operation"], part, place)))
