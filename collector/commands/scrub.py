"""`tracer scrub`: a copy of a trace that can be given away."""

import json
from pathlib import Path

import click

from collector.commands.read_counts import say_reads
from collector.scrub.names import key_of
from collector.scrub.scrubbing import scrub
from collector.trace.reading import Trace
from tracer.errors import InputError, ResourceError


@click.command("scrub")
@click.option("-o", "--output", "copy", metavar="COPY", required=True, help="Where the copy goes: a folder or a URL.")
@click.option(
    "--check",
    "check",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file with a text on each line: if any would be left, nothing is written.",
)
@click.option(
    "--key",
    "key",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write what stands for what to this file, to read answers by. Do not give it away.",
)
@click.argument("trace", metavar="TRACE")
def command(*, trace: str, copy: str, check: Path | None, key: Path | None) -> None:
    """Write a copy of TRACE for sharing: names of hosts, addresses, paths, ids, statements, users and processes are
    replaced, each by the same everywhere; times, sizes, protocols and statuses are kept.

    Captures are not part of a trace, and stay where they are.
    """
    forbidden = [] if check is None else _lines(check)
    if copy.rstrip("/") == trace.rstrip("/"):
        raise InputError("the copy would take the trace's place", "name another place with -o")
    done = scrub(Trace(trace), copy, forbidden)
    names = done.names
    click.echo(
        f"wrote {copy}: {len(names.hosts):,} hosts, {len(names.addresses):,} addresses, "
        f"{len(names.words) + len(names.numbers):,} words replaced"
    )
    given = f", nor of the {len(forbidden):,} texts of {check}" if forbidden else ""
    click.echo(f"checked: none of {done.checked_count:,} names and words is left{given}")
    if key is not None:
        _write_key(key, json.dumps(key_of(names), indent=1, ensure_ascii=False))
        click.echo(f"key: {key} (keep it)")
    say_reads(trace)


def _lines(file: Path) -> list[str]:
    try:
        return [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InputError(f"{file}: cannot be read ({reason})", "give a file with a text on each line") from None


def _write_key(file: Path, content: str) -> None:
    try:
        file.touch(mode=0o600)
        file.write_text(content + "\n", encoding="utf-8")
    except OSError as error:
        raise ResourceError(f"{file}: cannot be written ({error.strerror})", "write it elsewhere with --key") from None
