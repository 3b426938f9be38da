"""`tracer export`: writes a trace in another tool's format."""

from pathlib import Path

import click

from collector.commands.read_counts import say_reads
from collector.export import csv, perfetto, workload
from collector.trace.reading import Trace
from tracer.errors import InputError, ResourceError

FORMATS = {
    "csv": (csv.write, "{}.csv"),
    "perfetto": (perfetto.write, "{}.perfetto.json"),
    "workload": (workload.write, "{}.requests.jsonl"),
}
"""By format: its writer, and the default name of its output beside the trace."""


@click.command("export")
@click.option("--to", "form", required=True, metavar="FORMAT", help=f"One of: {', '.join(FORMATS)}.")
@click.option("-o", "--output", "place", type=click.Path(path_type=Path), help="File, or folder for csv.")
@click.argument("trace", metavar="TRACE")
def command(*, trace: str, form: str, place: Path | None) -> None:
    """Write TRACE in another tool's format: csv (a file for each table), perfetto (ui.perfetto.dev), workload (the
    requests of its clients at their times, with hashed names, for `tracer bench run`).
    """
    if form not in FORMATS:
        raise InputError(f"a trace cannot be written as {form}", f"formats: {', '.join(FORMATS)}")
    stored = Trace(trace)
    stored.info()
    write, default = FORMATS[form]
    place = place or Path(default.format(stored.name))
    try:
        written = write(stored, place)
    except OSError as error:
        raise ResourceError(f"{place}: cannot write it ({error.strerror})", "write it elsewhere with -o") from None
    click.echo(f"{len(written)} files in {place}" if len(written) > 1 else f"wrote {written[0]}")
    say_reads(trace)
