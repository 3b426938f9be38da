"""`tracer bench from TRACE`: a trace's requests as a workload, by the command that exports traces.

This package knows nothing of traces. The command `tracer export` is found as `tracer` itself finds it, by its entry
point.
"""

from importlib.metadata import entry_points
from pathlib import Path

import click

from storage_cluster.errors import MissingResourceError
from storage_cluster.operator import operator_errors


@click.command("from")
@click.argument("trace", metavar="TRACE")
@click.option(
    "-o", "--output", "file", type=click.Path(path_type=Path, dir_okay=False),
    help="The workload.  [default: <TRACE>.requests.jsonl]",
)  # fmt: skip
@click.pass_context
def command(ctx: click.Context, trace: str, file: Path | None) -> None:
    """Write the requests that clients made in TRACE as a workload, at their true times, for `tracer bench run`.

    Kinds, sizes and times are kept; names are hashed under a key that is kept nowhere.
    """
    found = [point for point in entry_points(group="tracer.commands") if point.name == "export"]
    with operator_errors():
        if not found:
            raise MissingResourceError("what reads traces is not installed here", "run it where `tracer export` is")
        export = found[0].load()
    words = ["--to", "workload", trace, *(("-o", str(file)) if file else ())]
    export.main(args=words, prog_name="tracer export", standalone_mode=False)
