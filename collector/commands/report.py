"""`tracer report`: what happened in a trace, where the time went, what is wrong."""

import json
import sys
from pathlib import Path

import click
from msgspec import to_builtins
from msgspec.structs import replace

from collector.commands.assert_option import read_assertions, show_verdicts
from collector.commands.read_counts import say_reads
from collector.commands.search_option import found_by, search_option
from collector.queries.bench_words import load_line
from collector.queries.trace_view import open_trace
from collector.reporting.html import write_html
from collector.reporting.report import Found, build_report
from collector.reporting.text import show
from collector.series.overview import build_overview
from collector.series.series import Series, is_series
from collector.series.text import show_overview
from tracer.errors import InputError
from tracer.plain_text import is_safe


@click.command("report")
@click.option(
    "--html", "html", type=click.Path(dir_okay=False, path_type=Path), help="Also write the report as one HTML file."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON instead.")
@click.option("--compare", "other", metavar="OTHER", help="Also show what differs from that trace, by stage.")
@click.option(
    "--assert",
    "rules",
    metavar="RULES",
    multiple=True,
    help="What must hold, or @FILE with it: 'p99(PUT) < 50ms; lost == 0'. If it does not, the exit status is 1.",
)
@click.option(
    "--junit",
    "junit",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the assertions as JUnit's XML.",
)
@click.option(
    "--bench",
    "runs",
    metavar="RUN",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Also show this run of `tracer bench run` or `import`, and how many of its operations are in the trace.",
)
@search_option
@click.argument("trace", metavar="TRACE")
def command(
    *,
    trace: str,
    other: str | None,
    html: Path | None,
    as_json: bool,
    rules: tuple[str, ...],
    junit: Path | None,
    runs: tuple[Path, ...],
    search: str | None,
) -> None:
    """Show on one screen what happened in TRACE and where the time went; or in a series of traces, and when."""
    if is_series(Path(trace)):
        if other is not None or html is not None or rules or runs or search is not None:
            raise InputError(f"{trace} is a series of traces", "name the trace of one of its periods")
        overview = build_overview(Series(Path(trace)))
        if as_json:
            click.echo(_escape_controls(json.dumps(to_builtins(overview), indent=1, ensure_ascii=False)))
        else:
            show_overview(overview)
        return
    assertions = read_assertions(rules)
    if junit is not None and not assertions:
        raise InputError("--junit writes what --assert finds", "give --assert, too")
    only = found_by(trace, search)
    report = build_report(trace, other, None if only is None else Found(search or "", only))
    if runs:
        view = open_trace(trace)
        report = replace(report, load=tuple(load_line(view, run) for run in runs))
    if as_json:
        click.echo(_escape_controls(json.dumps(to_builtins(report), indent=1, ensure_ascii=False)))
    else:
        show(report)
    if html is not None:
        write_html(report, html)
        click.echo(f"page: {html}", err=as_json)
    say_reads(trace, *([other] if other else []))
    if assertions and not show_verdicts(trace, assertions, junit, quiet=as_json):
        sys.exit(1)


def _escape_controls(document: str) -> str:
    """The JSON document with characters that a terminal obeys as JSON's own escapes."""
    return "".join(sign if sign == "\n" or is_safe(sign) else json.dumps(sign)[1:-1] for sign in document)
