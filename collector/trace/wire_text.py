r"""Converts bytes from the wire to text: the only place where contents of messages become strings.

(Names in captures and of files come from the operator, not from peers: `tracer.plain_text`.)

A peer may send bytes that are no UTF-8, control characters that a terminal obeys, or characters that reorder the text
around them. Each such byte is written as an escape, `\xe9`, so that every string of a trace is valid UTF-8 and safe to
print. In a text that needs an escape, or that already contains `\x`, backslashes are doubled. So different bytes stay
different texts, and ids that are equal on the wire stay equal.

Cost: two passes over the bytes; more only if some text may need an escape.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from collector.capture_files.records import HEAD_COLUMNS, HEAD_STRINGS, Columns
from collector.trace.arrow import for_each, nullable, string_array
from tracer.plain_text import escape, is_safe

PRINTABLE = range(0x20, 0x7F)
"""Bytes of ASCII that a terminal shows unchanged."""
BACKSLASH = 0x5C


def string_array_from_wire(offsets: NDArray[np.int32], data: NDArray[np.uint8]) -> pa.StringArray:
    """An Arrow array of valid UTF-8 without control characters.

    Arguments: `offsets` (n+1) of the texts in `data`.
    """
    if not len(data) or (_is_printable(data) and not (data == BACKSLASH).any()):
        return string_array(offsets, data)
    whole = data.tobytes()
    bounds = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    return pa.array([text_from_wire(whole[begin:end]) for begin, end in bounds], pa.string())


def _is_printable(data: NDArray[np.uint8]) -> bool:
    return bool(data.min() >= PRINTABLE.start and data.max() < PRINTABLE.stop)


def text_from_wire(data: bytes) -> str:
    """`data` as text that is safe to show: invalid UTF-8 and unsafe characters are escaped."""
    text = data.decode("utf-8", "surrogateescape")
    if all(map(is_safe, text)) and "\\x" not in text:
        return text
    return "".join(map(_escape, text))


def _escape(character: str) -> str:
    if character == "\\":
        return "\\\\"
    return character if is_safe(character) else escape(character)


def head_batch(heads: Columns) -> pa.RecordBatch:
    """Message heads as a batch: `HEAD_COLUMNS`, `HEAD_STRINGS`, and `excerpt_row`.

    Arguments: columns as from the core, of which one may be one value for all heads, and `excerpt_row`.
    """
    count = len(heads["excerpt_row"])
    columns: dict[str, pa.Array] = {name: nullable(for_each(heads[name], count)) for name in HEAD_COLUMNS}
    columns["excerpt_row"] = nullable(heads["excerpt_row"])
    for name in HEAD_STRINGS:
        columns[name] = string_array_from_wire(for_each(heads[f"{name}_offsets"], count + 1), heads[f"{name}_bytes"])
    return pa.record_batch(columns)
