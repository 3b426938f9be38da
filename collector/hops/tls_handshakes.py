"""Columns of `connections` that say what a connection's TLS handshake asked for, and what came of it.

The core reads the hellos (`collector/core/messages/src/tls_handshakes.rs`, which has the rules and their limits).
"""

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from collector import _core
from collector.capture_files.records import by_name
from collector.decode.decoded import Decoded
from collector.trace.arrow import bits, dictionary_array, null_array
from collector.trace.wire_text import string_array_from_wire

if TYPE_CHECKING:
    from collector._core import EventPlaces

TEXTS = ("server_name", "alpn_offered", "alpn", "versions_offered", "version", "cipher", "alert")
FLAGS = ("early_data_offered", "ech_offered", "retried")
RESUMPTION = pa.array(["", "full", "resumed", "psk"], pa.string())
"""Dictionary of `tls_resumption`, in the order of the core's codes; the first stands for null."""
EVIDENCE = pa.array(["", "client", "server", "both"], pa.string())
"""Dictionary of `tls_evidence`, by which hellos were captured whole; the first stands for null."""
ALERT_FROM = pa.array(["client", "server"], pa.string())


def handshake_columns(
    decoded: Decoded, placed: "EventPlaces", first_id: int, count: int, is_of_end: NDArray[np.bool_] | None = None
) -> dict[str, pa.Array]:
    """Columns `tls_*` of `count` connections, whose ids begin with `first_id`; null where nothing says it.

    Arguments: as of `collector.hops.messages.message_table`.
    """
    excerpts = decoded.excerpts
    rows = np.arange(len(excerpts["frame"])) if is_of_end is None else np.flatnonzero(is_of_end)
    found = by_name(_core.read_tls_handshakes(excerpts, rows.astype(np.uint32), by_name(placed), first_id, count))
    texts = {name: string_array_from_wire(found[f"{name}_offsets"], found[f"{name}_bytes"]) for name in TEXTS}
    columns = {name: _without_empty(texts[name]) for name in TEXTS}
    columns |= {name: pa.array(found[name]) for name in FLAGS}
    evidence = found["has_client_hello"] + 2 * found["has_server_hello"].astype(np.int32)
    columns |= {
        "resumption": _names_of(found["resumption"], RESUMPTION),
        "evidence": _names_of(evidence, EVIDENCE),
        "alert_from": _names_of(found["alert_from_server"].astype(np.int32), ALERT_FROM, columns["alert"].is_valid()),
    }
    if not len(found["connection"]):
        return {f"tls_{name}": null_array(count, column.type) for name, column in columns.items()}
    place = np.full(count, -1, dtype=np.int64)
    place[found["connection"]] = np.arange(len(found["connection"]))
    taken = pa.array(place, mask=place < 0)
    return {f"tls_{name}": column.take(taken) for name, column in columns.items()}


def _without_empty(texts: pa.StringArray) -> pa.DictionaryArray:
    """Texts as a dictionary column, null where they are empty."""
    return pa.array([text or None for text in texts.to_pylist()], pa.string()).dictionary_encode()


def _names_of(codes: NDArray[np.int32], names: pa.Array, valid: pa.Array | None = None) -> pa.DictionaryArray:
    """Codes as names; null where `valid` is not given and the code is 0, or where it is false."""
    known = codes > 0 if valid is None else valid.to_numpy(zero_copy_only=False)
    return dictionary_array(codes.astype(np.int32), names, bits(known))
