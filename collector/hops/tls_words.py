"""What a TLS handshake says, in words: of one connection, and of all of a trace by server."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import polars as pl
import pyarrow as pa
from msgspec import Struct

from collector.trace.schema import CONNECTIONS

COLUMNS = (
    *("connection_id", "server_host", "server_addr", "server_port"),
    *("tls_server_name", "tls_alpn_offered", "tls_alpn", "tls_versions_offered", "tls_version", "tls_cipher"),
    *("tls_resumption", "tls_early_data_offered", "tls_ech_offered", "tls_retried", "tls_alert", "tls_alert_from"),
    "tls_evidence",
)
RESUMPTION = {
    "full": "full handshake",
    "resumed": "session resumed",
    "psk": "session resumed, or a key that both ends were given before",
}
UNSEEN = {
    None: "neither hello was captured whole",
    "client": "the server's hello was not captured whole",
    "server": "the client's hello was not captured whole",
}
SHOWING_TLS = ("tls_evidence", "tls_server_name", "tls_version", "tls_cipher")
"""Columns of `connections` of which at least one is known where a handshake was read."""
IS_TLS = pl.any_horizontal(pl.col(SHOWING_TLS).is_not_null())
"""Whether a handshake was read on a connection."""


def is_handshake(row: Mapping[str, Any]) -> bool:
    """Whether a handshake was read on a connection, given its row of `connections`."""
    return any(row[name] is not None for name in SHOWING_TLS)


def handshake_words(row: Mapping[str, Any]) -> str:
    """The handshake of a row of `connections` with `COLUMNS`; "" if none was read."""
    if not is_handshake(row):
        return ""
    return "; ".join(part for part in _parts(row) if part)


def _parts(row: Mapping[str, Any]) -> Iterable[str]:
    version, offered = row["tls_version"], row["tls_versions_offered"]
    yield f"TLS {version}" if version else "TLS, " + (f"{offered} offered" if offered else "version not seen")
    yield row["tls_cipher"] or ""
    if name := row["tls_server_name"]:
        yield f"asked for {name}" + (" (an outer name, if the hello is encrypted)" if row["tls_ech_offered"] else "")
    yield _alpn(row, is_encrypted=version == "1.3")
    yield RESUMPTION.get(row["tls_resumption"], "")
    yield "early data offered" if row["tls_early_data_offered"] else ""
    yield "another hello was asked for" if row["tls_retried"] else ""
    yield failure_words(row)
    yield UNSEEN.get(row["tls_evidence"], "")


def _alpn(row: Mapping[str, Any], *, is_encrypted: bool) -> str:
    chosen, offered = row["tls_alpn"], row["tls_alpn_offered"]
    if chosen:
        return f"{chosen} chosen" + (f" of {offered}" if offered else "")
    if not offered:
        return ""
    return f"{offered} offered" + (" (which was chosen is encrypted)" if is_encrypted else "")


def failure_words(row: Mapping[str, Any]) -> str:
    """Why the handshake failed; "" if no alert shows that."""
    if row["tls_alert"] is None:
        return ""
    said = "an encrypted alert" if row["tls_alert"] == "encrypted" else row["tls_alert"]
    return f"failed: the {row['tls_alert_from']} sent {said}"


class TlsLine(Struct, frozen=True):
    """Handshakes with one server and the same name, version and cipher suite."""

    server: str  # HOST:PORT
    server_name: str | None
    version: str | None
    cipher: str | None
    alpn: str | None  # chosen, or else offered
    count: int
    full_count: int
    resumed_count: int  # or with a key that both ends were given before
    failed_count: int


def tls_lines(connections: Iterable[pa.Table]) -> tuple[TlsLine, ...]:
    """The handshakes of a trace, most first. Arguments: the table `connections`, with `COLUMNS`, in parts; those
    without a handshake may be left out."""
    none = CONNECTIONS.empty_table().select(COLUMNS)
    parts = (pl.DataFrame(part.select(COLUMNS)).filter(IS_TLS) for part in chain([none], connections))
    rows = pl.concat(part.with_columns(pl.col(pl.Categorical).cast(pl.String)) for part in parts)
    server = pl.format("{}:{}", pl.coalesce("server_host", "server_addr"), "server_port")
    keys = ("server", "server_name", "version", "cipher", "alpn")
    named = rows.with_columns(
        server=server,
        server_name="tls_server_name",
        version="tls_version",
        cipher="tls_cipher",
        alpn=pl.coalesce("tls_alpn", "tls_alpn_offered"),
    )
    resumption = pl.col("tls_resumption")
    groups = named.group_by(keys).agg(
        count=pl.len(),
        full_count=(resumption == "full").sum(),
        resumed_count=resumption.is_in(["resumed", "psk"]).sum(),
        failed_count=pl.col("tls_alert").is_not_null().sum(),
    )
    ordered = groups.sort("count", *keys, descending=[True, *(False for _ in keys)], nulls_last=True)
    return tuple(TlsLine(**row) for row in ordered.rows(named=True))


def line_words(line: TlsLine) -> tuple[str, str, str]:
    """Server, protocol and counts of a line, as reports show them."""
    server = line.server if line.server_name is None else f"{line.server} ({line.server_name})"
    version = "version not seen" if line.version is None else f"TLS {line.version}"
    what = ", ".join(part for part in (version, line.cipher, line.alpn) if part)
    counts = ((line.full_count, "full"), (line.resumed_count, "resumed"), (line.failed_count, "failed"))
    parts = ", ".join(f"{count:,} {word}" for count, word in counts if count)
    return server, what, f"{line.count:,} handshake{'s' * (line.count != 1)}" + (f": {parts}" if parts else "")
