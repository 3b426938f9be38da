"""`tracer bench paper`: the papers' experiments, one command each."""

import functools
from pathlib import Path

import click

from storage_cluster.bench.paper import charts, experiment_000, experiment_004, points, statements_000, traces
from storage_cluster.operator import operator_errors

_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.group()
def paper() -> None:
    """Do a paper's experiment again, on a cluster of its own; what is done already is not done twice."""


@paper.command("000")
@click.option("--quick", is_flag=True, help="A few points with few objects: minutes.")
@click.option(
    "-o", "--output", "folder", default=Path("runs/paper-000"), show_default=True, type=_FOLDER, help="Where to."
)
@click.option("--media", multiple=True, type=click.Choice(experiment_000.MEDIA), help="Only this; may be given again.")
@click.option(
    "--size", "sizes", multiple=True, type=click.Choice(list(experiment_000.SIZES)), help="Only this; the same."
)
@click.option("--no-traces", is_flag=True, help="Do not record pictures 15 and 16, nor what went wrong.")
def paper_000(quick: bool, folder: Path, media: tuple[str, ...], sizes: tuple[str, ...], no_traces: bool) -> None:
    """Uploads on HDD and SSD, 1 to 2,048 at once: throughput, failures, use of the hosts (figures 3 to 14)."""
    tell = functools.partial(click.echo, err=True)
    base = experiment_000.QUICK if quick else experiment_000.Plan()
    plan = experiment_000.Plan(media or base.media, sizes or base.sizes, base.concurrency, base.objects_count)
    with operator_errors():
        folder.mkdir(parents=True, exist_ok=True)
        todo = experiment_000.points(plan, folder)
        points.do(todo, folder, tell)
        series = experiment_000.gather(plan, points.load(todo, folder))
        found = statements_000.statements(series)
        traced = [] if no_traces else traces.record(todo, traces.worst(series, todo), folder, tell)
        title = f"Document 000, {plan.objects_count:,} objects"
        charts.write_html(series, found, traced, folder / "report.html", title)
    click.echo(statements_000.as_text(found))
    for each in traced:
        click.echo(f"{each.title}: tracer view {each.folder}")
    click.echo(f"charts: {folder / 'report.html'}")


@paper.command("004")
@click.option("--quick", is_flag=True, help="One short run of each: a minute.")
@click.option(
    "-o", "--output", "folder", default=Path("runs/paper-004"), show_default=True, type=_FOLDER, help="Where to."
)
def paper_004(quick: bool, folder: Path) -> None:
    """350 KB by 256 workers for 60 s, and ten large objects: op/s, MB/s, 90 % response time, success; mean of three."""
    plan = experiment_004.QUICK if quick else experiment_004.Plan()
    with operator_errors():
        folder.mkdir(parents=True, exist_ok=True)
        todo = experiment_004.points(plan, folder)
        points.do(todo, folder, functools.partial(click.echo, err=True))
        lines = experiment_004.table(points.load(todo, folder))
    click.echo(experiment_004.as_text(lines))
