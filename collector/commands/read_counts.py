"""What a command read of a trace that is not on this machine's disk, in one line."""

import click

from collector.trace.objects import read_count
from collector.trace.reading import Trace
from tracer.plain_text import plain
from tracer.secret_rules import without_secrets


def say_reads(*urls: str) -> None:
    """Print on standard error how much of each of these traces was read; nothing for a directory."""
    for url in urls:
        count = read_count(url)
        if count is not None:
            whole = in_bytes(Trace(url).stored_bytes())
            read = f"read {in_bytes(count.bytes_count)} in {count.requests_count:,} requests"
            click.echo(without_secrets(plain(f"{read} from {url} (its tables: {whole})")), err=True)


def in_bytes(count: int) -> str:
    """`3.1 MB`."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
