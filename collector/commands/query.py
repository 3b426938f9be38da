"""`tracer query`: SQL over a trace."""

import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import click
import pyarrow as pa
from rich.console import Console
from rich.text import Text

from collector.commands.read_counts import say_reads
from collector.commands.search_option import found_by, search_option
from collector.reporting.console import WIDTH, new_console, new_grid, show_grid, show_heading, show_paragraph
from collector.series.series import is_series
from collector.sql.database import Database, QueryLimits
from collector.sql.output import TEXTS, show_rows, write_parquet
from collector.sql.saved_queries import answers, keep_query, query_of, saved_queries
from collector.sql.views import STORED, VIEWS
from collector.trace.reading import Trace
from tracer.errors import InputError, ResourceError
from tracer.plain_text import plain

FORMATS = ("table", "csv", "json", "parquet")
SCHEMA = ".schema"
ROWS = 50
NOTE = (
    "Times are UTC by the reference host's clock unless a column says otherwise; what is not known is null. The stored "
    f"tables are in the schema {STORED} ({STORED}.hops); docs/query.md has examples."
)


@click.command("query")
@click.option("--to", "form", type=click.Choice(FORMATS), help="How to write the rows.  [default: table]")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write all rows to FILE.")
@click.option("--rows", type=click.IntRange(min=0), default=ROWS, show_default=True, help="Of a table: 0 for all.")
@click.option("--memory-mib", type=click.IntRange(min=64), default=2048, show_default=True, help="What it may use.")
@click.option("--seconds", type=click.FloatRange(min=0.1), help="End it after so long.  [default: never]")
@search_option
@click.option("--save", "name", metavar="NAME", help="Also save the query: from then on it is @NAME.")
@click.argument("trace", metavar="TRACE")
@click.argument("words", metavar="[SQL|@NAME|@FILE.sql|.schema [TABLE]]", nargs=-1)
def command(
    *,
    trace: str,
    words: tuple[str, ...],
    form: str | None,
    file: Path | None,
    rows: int,
    memory_mib: int,
    seconds: float | None,
    search: str | None,
    name: str | None,
) -> None:
    """Ask TRACE in SQL (DuckDB's).

    Without a query, or with .schema, print the tables with the meaning of each column, and the saved queries.
    `.schema requests` is that table alone; - reads the query from standard input.
    """
    console, query = new_console(), " ".join(words) or SCHEMA
    if query.startswith(SCHEMA):
        _show_schema(console, query.removeprefix(SCHEMA).strip())
        return
    sql = query_of(sys.stdin.read() if query == "-" else query)
    if is_series(Path(trace)):
        raise InputError(f"{trace} is a series of traces", "name the trace of one of its periods")
    suffix = file.suffix.removeprefix(".") if file else ""
    write = _writer(form or (suffix if suffix in FORMATS else "table"), file, console, rows or None)
    limits = QueryLimits(memory_mib, seconds=seconds)
    with closing(Database(Trace(trace), limits, found_by(trace, search))) as database, database.run(sql) as found:
        write(found)
    if name is not None:
        click.echo(f"saved as @{name}: {keep_query(name, sql)}", err=True)
    say_reads(trace)


def _writer(form: str, file: Path | None, console: Console, most: int | None) -> Callable[[pa.RecordBatchReader], None]:
    """What writes the rows. Raises: `InputError` for a format that cannot go there."""
    if form == "table":
        if file is not None:
            raise InputError("a table is for the screen", "give --to csv, json or parquet with -o")
        return lambda found: show_rows(found, most, console)
    if file is None and form == "parquet":
        raise InputError("Parquet is no text", "name a file with -o")
    return lambda found: _write_file(form, file, found) if file else _print_text(TEXTS[form](found))


def _print_text(parts: Iterable[str]) -> None:
    for part in parts:
        safe = "\n".join(map(plain, part.split("\n"))) if sys.stdout.isatty() else part
        sys.stdout.write(safe)


def _write_file(form: str, file: Path, found: pa.RecordBatchReader) -> None:
    try:
        if form == "parquet":
            write_parquet(found, file)
        else:
            with file.open("w", encoding="utf-8", newline="") as written:
                written.writelines(TEXTS[form](found))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ResourceError(f"{file}: cannot write it ({reason})", "write it elsewhere with -o") from None
    click.echo(f"wrote {file}")


def _show_schema(console: Console, name: str) -> None:
    """Print the views with their columns, or one of them; and the saved queries."""
    views = [view for view in VIEWS if name in ("", view.name)]
    if not views:
        raise InputError(f"there is no table {name}", f"there are: {', '.join(view.name for view in VIEWS)}")
    console.width = console.width if console.is_terminal else WIDTH
    for view in views:
        show_heading(console, view.name, f"each row is {view.meaning}")
        grid = new_grid("<", "<")
        for column in view.columns:
            grid.add_row(column.name, Text(column.meaning, "dim"))
        show_grid(console, grid)
    if name:
        return
    show_heading(console, "Saved queries", "tracer query TRACE @NAME")
    grid = new_grid("<", "<")
    for saved, sql in saved_queries().items():
        grid.add_row(f"@{plain(saved)}", Text(plain(answers(sql)), "dim"))
    show_grid(console, grid)
    console.print()
    show_paragraph(console, NOTE, "dim")
