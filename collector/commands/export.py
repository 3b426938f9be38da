"""`tracer export`: writes a trace in another tool's format."""

from pathlib import Path

import click
import numpy as np

from collector.commands.read_counts import say_reads
from collector.commands.search_option import found_by, search_option
from collector.export import csv, har, jaeger, mermaid, otlp, parquet, perfetto, shiviz, workload
from collector.export.otlp_grpc import push_grpc
from collector.export.otlp_push import GRPC, endpoint_of, is_endpoint, push_http
from collector.queries.merged_capture import write_merged
from collector.queries.search import found_requests
from collector.queries.selection import Selection
from collector.queries.trace_view import TraceView, open_trace
from collector.queries.why import find_request
from collector.reporting.request_rows import RootIds
from collector.trace.durations import in_words
from collector.trace.reading import Trace
from tracer.errors import InputError, ResourceError

TABLES = {"csv": (csv.write, "{}.csv"), "parquet": (parquet.write, "{}.parquet")}
"""By format: its writer, and the default name of its output beside the trace."""
REQUESTS = {
    "perfetto": (perfetto.write, "{}.pftrace"),
    "otlp": (otlp.write, "{}.otlp.jsonl"),
    "jaeger": (jaeger.write, "{}.jaeger.json"),
    "har": (har.write, "{}.har"),
    "mermaid": (mermaid.write, "{}.mmd"),
    "shiviz": (shiviz.write, "{}.shiviz.log"),
}
"""The same of those that hold requests, not tables."""
WORKLOAD, PCAPNG = "workload", "pcapng"
FILE = click.Path(path_type=Path)
BetweenSeconds = tuple[float | None, float | None]
"""An interval, in seconds since the trace's beginning; None for as far as it goes."""
FORMATS = (*TABLES, WORKLOAD, *REQUESTS, PCAPNG)


@click.command("export")
@click.option("--to", "form", required=True, metavar="FORMAT", help=f"One of: {', '.join(FORMATS)}.")
@click.option("-o", "--output", "place", help="File; a folder for csv and parquet; for otlp also a URL.")
@click.option("--request", "request", metavar="REQUEST", help="Only this one: a transaction id, #12 or slowest.")
@search_option
@click.option(
    "--from",
    "from_s",
    type=float,
    metavar="SECONDS",
    help="Packets (pcapng), or requests that last, from this time of the trace on.",
)
@click.option("--until", "until_s", type=float, metavar="SECONDS", help="Likewise, until this time of the trace.")
@click.option("--own-clocks", is_flag=True, help="pcapng: stamps are the hosts' own, as captured.")
@click.option("--headers", type=FILE, metavar="FILE", help="otlp to a URL: a line `Name: value` for each header.")
@click.option("--ca", type=FILE, metavar="FILE", help="otlp to a URL: trust only these authorities (PEM).")
@click.argument("trace", metavar="TRACE")
def command(
    *,
    trace: str,
    form: str,
    place: str | None,
    request: str | None,
    search: str | None,
    from_s: float | None,
    until_s: float | None,
    own_clocks: bool,
    headers: Path | None,
    ca: Path | None,
) -> None:
    """Write TRACE in another tool's format.

    \b
    csv, parquet   a file for each table
    perfetto       requests, packets and counters for ui.perfetto.dev
    otlp           OpenTelemetry spans, to a file or to a collector:
                   http://HOST:4318, grpc://HOST:4317; https, grpcs with TLS
    jaeger         for Jaeger's page (JSON File)
    har            the HTTP requests of clients, for browsers' tools
    mermaid        a request (by default the longest) as a sequence diagram
    shiviz         the packets of a request (the longest) with vector clocks
    pcapng         the packets of all hosts in one file, on one clock, for Wireshark
    workload       clients' requests at their times, names hashed, for `tracer bench run`
    """
    if form not in FORMATS:
        raise InputError(f"a trace cannot be written as {form}", f"formats: {', '.join(FORMATS)}")
    if form == WORKLOAD and (request is not None or search is not None):
        raise InputError(f"{form} holds a whole trace", "leave --request and --search out")
    if search is not None and request is not None:
        raise InputError("--search and --request both choose requests", "give one of them")
    if own_clocks and form != PCAPNG:
        raise InputError(f"--own-clocks is for {PCAPNG}", "other formats have the trace's one timescale")
    between_s = None if from_s is None and until_s is None else (from_s, until_s)
    if between_s is not None and (form == WORKLOAD or request is not None):
        raise InputError(
            "--from and --until choose packets or requests", "give them with neither workload nor --request"
        )
    if form != "otlp" and is_endpoint(place):
        raise InputError(f"{form} is written to a file", "only otlp is sent to a URL")
    if not is_endpoint(place) and (headers is not None or ca is not None):
        raise InputError("--headers and --ca are for what is sent", "give --to otlp -o URL")
    if form == PCAPNG:
        _write_packets(trace, place, request, search, between_s, own_clocks=own_clocks)
        return
    stored = Trace(trace)
    stored.info()
    only = _chosen_roots(trace, request, search, between_s)
    if place is not None and is_endpoint(place):
        push = push_grpc if place.split("://")[0] in GRPC else push_http
        click.echo(f"sent {push(stored, endpoint_of(place, headers, ca), only):,} spans to {place}")
    else:
        _write(stored, form, place, only)
    say_reads(trace)


def _write_packets(
    trace: str,
    given: str | None,
    request: str | None,
    search: str | None,
    between_s: BetweenSeconds | None,
    *,
    own_clocks: bool,
) -> None:
    view = open_trace(trace)
    place, selection = Path(given or f"{view.summary.name}.{PCAPNG}"), None
    if search is not None:
        view = view.only(found_requests(view, search))
    if request is not None:
        selection = Selection(request=find_request(view, request))
    elif search is not None or between_s is not None:
        selection = Selection(None, *_interval(view, between_s))
    try:
        count = write_merged(view, selection, place, own_clocks=own_clocks)
    except OSError as error:
        raise ResourceError(f"{place}: cannot write it ({error.strerror})", "write it elsewhere with -o") from None
    click.echo(f"wrote {count:,} packets to {place}")


def _interval(view: TraceView, between_s: BetweenSeconds | None) -> tuple[int, int]:
    """In ns since the trace's beginning; what is not given is as far as it goes."""
    from_s, until_s = between_s or (None, None)
    return round((from_s or 0) * 1e9), view.duration_ns + 1 if until_s is None else round(until_s * 1e9)


def _chosen_roots(
    trace: str, request: str | None, search: str | None, between_s: BetweenSeconds | None
) -> RootIds | None:
    """The requests that are asked for; None for all. Raises: `InputError` if there are none."""
    if request is None and between_s is None:
        return found_by(trace, search)
    view = open_trace(trace)
    if request is not None:
        return view.trace_ids(np.array([find_request(view, request)]))
    if search is not None:
        view = view.only(found_requests(view, search))
    numbers = view.requests_between(*_interval(view, between_s))
    if not len(numbers):
        raise InputError("there is no request in that time", f"the trace lasts {in_words(view.duration_ns)}")
    return view.trace_ids(numbers)


def _write(stored: Trace, form: str, given: str | None, only: RootIds | None) -> None:
    writers = TABLES | REQUESTS
    place = Path(
        given or (f"{stored.name}.requests.jsonl" if form == WORKLOAD else writers[form][1].format(stored.name))
    )
    try:
        written = workload.write(stored, place) if form == WORKLOAD else writers[form][0](stored, place, only)
    except OSError as error:
        raise ResourceError(f"{place}: cannot write it ({error.strerror})", "write it elsewhere with -o") from None
    click.echo(f"{len(written)} files in {place}" if len(written) > 1 else f"wrote {written[0]}")
    lacks = perfetto.left_out(stored, only) if form == "perfetto" else ""
    if lacks:
        click.echo(lacks)
