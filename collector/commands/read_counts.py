"""What a command read of a trace that is not on this machine's disk, in one line."""

import click

from collector.trace.objects import in_bytes, read_count
from collector.trace.reading import Trace
from tracer.plain_text import plain
from tracer.secret_rules import without_secrets


def say_reads(*urls: str) -> None:
    """Print on standard error how much of each of these traces was read; nothing for a directory."""
    for url in urls:
        count = read_count(url)
        if count is not None:
            whole = in_bytes(Trace(url).stored_bytes())
            line = f"read {count.words} from {url} (its tables: {whole})"
            click.echo(without_secrets(plain(line)), err=True)
