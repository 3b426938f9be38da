"""`tracer export`: writes a trace in another tool's format."""

from pathlib import Path

import click
import numpy as np

from collector.commands.read_counts import say_reads
from collector.export import csv, har, jaeger, mermaid, otlp, parquet, perfetto, workload
from collector.queries.trace_view import open_trace
from collector.queries.why import find_request
from collector.trace.reading import Trace
from tracer.errors import InputError, ResourceError

TABLES = {
    "csv": (csv.write, "{}.csv"),
    "parquet": (parquet.write, "{}.parquet"),
    "workload": (workload.write, "{}.requests.jsonl"),
}
"""By format: its writer, and the default name of its output beside the trace."""
REQUESTS = {
    "perfetto": (perfetto.write, "{}.perfetto.json"),
    "otlp": (otlp.write, "{}.otlp.jsonl"),
    "jaeger": (jaeger.write, "{}.jaeger.json"),
    "har": (har.write, "{}.har"),
    "mermaid": (mermaid.write, "{}.mmd"),
}
"""The same of those that can hold one request only."""
FORMATS = (*TABLES, *REQUESTS)
HTTP = ("http://", "https://")


@click.command("export")
@click.option("--to", "form", required=True, metavar="FORMAT", help=f"One of: {', '.join(FORMATS)}.")
@click.option("-o", "--output", "place", help="File; a folder for csv and parquet; for otlp also http://HOST:4318.")
@click.option("--request", "request", metavar="REQUEST", help="Only this one: a transaction id, #12 or slowest.")
@click.argument("trace", metavar="TRACE")
def command(*, trace: str, form: str, place: str | None, request: str | None) -> None:
    """Write TRACE in another tool's format.

    \b
    csv, parquet   a file for each table
    perfetto       slices and arrows for ui.perfetto.dev
    otlp           OpenTelemetry spans, to a file or to an OTLP/HTTP endpoint
    jaeger         for Jaeger's page (JSON File)
    har            the HTTP requests of clients, for browsers' tools
    mermaid        a request (by default the longest) as a sequence diagram
    workload       clients' requests at their times, names hashed, for `tracer bench run`
    """
    if form not in FORMATS:
        raise InputError(f"a trace cannot be written as {form}", f"formats: {', '.join(FORMATS)}")
    if request is not None and form not in REQUESTS:
        raise InputError(f"{form} holds a whole trace", f"--request is for {', '.join(REQUESTS)}")
    stored = Trace(trace)
    stored.info()
    only = None if request is None else _trace_id(trace, request)
    if form == "otlp" and place is not None and place.startswith(HTTP):
        click.echo(f"sent {otlp.push(stored, place, only):,} spans to {place}")
    else:
        _write(stored, form, place, only)
    say_reads(trace)


def _trace_id(trace: str, request: str) -> int:
    view = open_trace(trace)
    return int(view.trace_ids(np.array([find_request(view, request)]))[0])


def _write(stored: Trace, form: str, given: str | None, only: int | None) -> None:
    default = (TABLES | REQUESTS)[form][1]
    place = Path(given or default.format(stored.name))
    try:
        written = REQUESTS[form][0](stored, place, only) if form in REQUESTS else TABLES[form][0](stored, place)
    except OSError as error:
        raise ResourceError(f"{place}: cannot write it ({error.strerror})", "write it elsewhere with -o") from None
    click.echo(f"{len(written)} files in {place}" if len(written) > 1 else f"wrote {written[0]}")
