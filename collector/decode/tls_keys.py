"""Reads the secrets of TLS connections from key logs, into the core: they never cross to Python."""

from collections.abc import Iterable
from pathlib import Path

from collector import _core
from collector.capture_files.readers import TlsKeys
from collector.trace.model import CounterInfo
from tracer.errors import InputError

UNREAD = "tls_keys_unread"
"""The counter of lines that are none of a key log (`tracer/core/wire/src/counters.rs`)."""


def read_key_logs(paths: Iterable[Path]) -> tuple[TlsKeys, tuple[CounterInfo, ...]]:
    """The secrets in key logs (format of `SSLKEYLOGFILE`), and a counter of lines that are none.

    Raises: InputError if a file cannot be read, or holds no secret.
    """
    keys, unread_count = TlsKeys(), 0
    for path in paths:
        try:
            secrets_count, unread = keys.add_file(path)
        except OSError as error:
            reason = error.strerror or str(error).partition(" (os error")[0]  # the core's errors have no number
            raise InputError(f"{path} cannot be read: {reason}", "check the name and its permissions") from None
        if not secrets_count:
            next_step = "give a key log: what client or server write to the file that SSLKEYLOGFILE names"
            raise InputError(f"{path} holds no secrets of TLS connections", next_step)
        unread_count += unread
    severity, remedy = next(fields for name, *fields in _core.decode_counters() if name == UNREAD)
    counters = (CounterInfo(None, UNREAD, severity, unread_count, remedy),) if unread_count else ()
    return keys, counters
