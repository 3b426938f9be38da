"""`tracer bench paper`: the papers' experiments, one command each."""

import dataclasses
import functools
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from storage_cluster.bench.paper import (
    arrows,
    charts_001,
    charts_003,
    charts_004,
    experiment_000,
    experiment_001,
    experiment_002,
    experiment_003,
    experiment_004,
    outcome,
    outcome_001,
    outcome_002,
    outcome_003,
    page,
    pictures,
    points,
    statements,
    statements_000,
    statements_001,
    statements_002,
    statements_003,
    traces,
    traces_001,
    traces_003,
    turns_002,
)
from storage_cluster.errors import MissingResourceError
from storage_cluster.operator import operator_errors
from storage_cluster.servers import balancer
from storage_cluster.services import BALANCER_PROGRAM

_FOLDER = click.Path(path_type=Path, file_okay=False)
Command = TypeVar("Command", bound=Callable[..., Any])
_PUBLISH = click.option("--publish", type=_FOLDER, help="Where text and pictures for the docs go.  [default: -o]")
_notify = functools.partial(click.echo, err=True)


def _make_folders(*folders: Path | None) -> None:
    """Make them now rather than after half an hour. Raises: MissingResourceError."""
    for folder in filter(None, folders):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MissingResourceError(f"{folder} cannot be made ({error.strerror})", "choose another folder") from None


def _output(default: str) -> Callable[[Command], Command]:
    """The option for the folder of the runs."""
    kind: dict[str, Any] = {"default": Path(default), "show_default": True, "type": _FOLDER}
    return click.option("-o", "--output", "folder", help="Folder for the runs.", **kind)


@click.group()
def paper() -> None:
    """Repeat a paper's experiment on a cluster of its own; finished points are not repeated."""


@paper.command("000")
@click.option("--quick", is_flag=True, help="A few points with few objects, in some minutes.")
@_output("runs/paper-000")
@click.option(
    "--media", multiple=True, type=click.Choice(experiment_000.MEDIA), help="Only this medium; may be given again."
)
@click.option(
    "--size",
    "sizes",
    multiple=True,
    type=click.Choice(list(experiment_000.SIZES)),
    help="Only this size; may be given again.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.0),
    help="Longest time of a point, from 128 at once on 9 times that; 0: none.  [default: 10]",
)
@click.option(
    "--topology",
    "setup",
    default=experiment_000.SETUPS[0],
    show_default=True,
    type=click.Choice(experiment_000.SETUPS),
    help="The paper's machines on this one, or with their processors, disks and queues modelled.",
)
@click.option("--rounds", default=experiment_000.ROUNDS, show_default=True, type=click.IntRange(1), help="Sweeps.")
@click.option("--no-traces", is_flag=True, help="Do not record the traces of pictures 15 and 16 and of failures.")
@_PUBLISH
def paper_000(
    quick: bool,
    folder: Path,
    setup: str,
    rounds: int,
    media: tuple[str, ...],
    sizes: tuple[str, ...],
    seconds: float | None,
    no_traces: bool,
    publish: Path | None,
) -> None:
    """Uploads on HDD and SSD, 1 to 2,048 at once: throughput, failures, use of the hosts (figures 3 to 14)."""
    base = experiment_000.QUICK if quick else experiment_000.Plan()
    plan = dataclasses.replace(
        base,
        media=media or base.media,
        sizes=sizes or base.sizes,
        seconds=base.seconds if seconds is None else seconds,
        setup=setup,
        rounds=rounds,
    )
    with operator_errors():
        _make_folders(folder, publish)
        todo = experiment_000.points(plan, folder)
        points.do(todo, folder, _notify)
        series = experiment_000.collect_results(plan, points.load(todo, folder))
        traced = [] if no_traces else _traces_000(plan, todo, series, folder)
        found = statements_000.statements(series, traces.accounts(traced))
        found += statements_000.of_pictures({each.folder.name: each.parts_ns for each in traced})
        made = outcome.figures(series, traced)
        file = outcome.write_html(made, found, traced, folder, f"Document 000, {plan.objects_count:,} objects")
        outcome.publish(made, series, found, traced, publish or folder, ("tracer", *sys.argv[1:]), _notify)
    click.echo(statements.as_text(found))
    for each in traced:
        click.echo(f"{each.title}: tracer view {each.folder}")
    click.echo(f"charts: {file}; pictures and text: {(publish or folder) / page.TEXT}")


def _traces_000(
    plan: experiment_000.Plan, todo: list[points.Point], series: experiment_000.Series, folder: Path
) -> list[traces.Traced]:
    """The pictures' traces and those of the points where most went wrong."""
    return traces.record(experiment_000.pictures(plan, folder), traces.worst(series, todo), folder, _notify)


@paper.command("001")
@click.option("--quick", is_flag=True, help="A few points of a second each, in some minutes.")
@_output("runs/paper-001")
@click.option(
    "--setup",
    "setups",
    multiple=True,
    type=click.Choice(list(experiment_001.SETUPS)),
    help="Only this cluster; may be given again.",
)
@click.option("--seconds", type=click.IntRange(1), help="Time of a point.  [default: 3]")
@click.option("--no-traces", is_flag=True, help="Do not record where a write's time goes.")
@_PUBLISH
def paper_001(
    quick: bool, folder: Path, setups: tuple[str, ...], seconds: int | None, no_traces: bool, publish: Path | None
) -> None:
    """Writes to S3 stores on ext3 and ext4, and through a proxy that chooses by size (figures 3 to 5). Needs root."""
    base = experiment_001.QUICK if quick else experiment_001.Plan()
    plan = dataclasses.replace(base, setups=setups or base.setups, seconds=seconds or base.seconds)
    with operator_errors():
        _make_folders(folder, publish)
        todo = experiment_001.points(plan, folder)
        points.do(todo, folder, _notify)
        results = experiment_001.collect_results(plan, points.load(todo, folder))
        traced = [] if no_traces else traces_001.record(plan.setups, folder, _notify)
        writes = traces_001.read_writes(traced)
        found = statements_001.statements(plan, results, writes)
        packets = {name: arrows.figure(picture) for name, picture in traces_001.read_pictures(traced).items()}
        made = charts_001.figures(plan, results, writes) | packets
        file = page.write_html(made, found, traced, folder, "Document 001", outcome_001.WIDE)
        outcome_001.publish(made, results, found, writes, traced, publish or folder, ("tracer", *sys.argv[1:]), _notify)
    click.echo(statements.as_text(found))
    for each in traced:
        click.echo(f"{each.title}: tracer view {each.folder}")
    click.echo(f"charts: {file}; pictures and text: {(publish or folder) / page.TEXT}")


@paper.command("002")
@click.option("--quick", is_flag=True, help="Smaller objects, shorter times, in some minutes.")
@_output("runs/paper-002")
@click.option(
    "--figure",
    "chosen",
    multiple=True,
    type=click.Choice(experiment_002.FIGURES),
    help="Run only the points of this figure; may be given again.",
)
@click.option("--no-traces", is_flag=True, help="Do not record the trace that shows whose turn it was.")
@_PUBLISH
def paper_002(quick: bool, folder: Path, chosen: tuple[str, ...], no_traces: bool, publish: Path | None) -> None:
    """Reserved throughput: 1 to 5 streams, and five clients at once, reading and writing (figures 4 to 7)."""
    plan = experiment_002.QUICK if quick else experiment_002.Plan()
    with operator_errors():
        _make_folders(folder, publish)
        todo = experiment_002.points(plan)
        experiment_002.do([point for point in todo if not chosen or point.figure in chosen], folder, _notify)
        done = experiment_002.load(todo, folder)
        turns = None if no_traces else turns_002.record(experiment_002.traced_point(plan), folder, _notify)
        found = statements_002.statements(done, plan.object_bytes)
        made = outcome_002.figures(done, plan.object_bytes, turns)
        shown = page.write_html(made, found, (), folder, "Document 002")
        where = publish or folder
        outcome_002.publish(made, done, plan.object_bytes, found, turns, where, ("tracer", *sys.argv[1:]), _notify)
    click.echo(statements.as_text(found))
    click.echo(f"charts: {shown}; pictures and text: {where / page.TEXT}")


@paper.command("003")
@click.option("--quick", is_flag=True, help="HDD and SSD, a few points of up to 10 MB, in four minutes.")
@_output("runs/paper-003")
@click.option(
    "--setup",
    "setups",
    multiple=True,
    type=click.Choice(list(experiment_003.SETUPS)),
    help="Only this cluster; may be given again.",
)
@click.option(
    "--largest",
    type=click.Choice(list(experiment_003.SIZES)),
    help="Largest object.  [default: 1GB, or what the disk allows]",
)
@click.option("--seconds", type=click.FloatRange(1.0), help="Time of a point.  [default: 4]")
@click.option("--no-traces", is_flag=True, help="Do not record the traces of the document's questions.")
@_PUBLISH
def paper_003(
    quick: bool,
    folder: Path,
    setups: tuple[str, ...],
    largest: str | None,
    seconds: float | None,
    no_traces: bool,
    publish: Path | None,
) -> None:
    """GET and PUT through an S3 gateway, by workers and by size, on HDD and SSD (figures 4 to 9); several gateways."""
    base = experiment_003.QUICK if quick else experiment_003.Plan()
    with operator_errors():
        _make_folders(folder, publish)
        fitting = experiment_003.largest_that_fits(shutil.disk_usage(folder).free)
        largest = largest or min(fitting, base.largest, key=lambda size: experiment_003.SIZES[size])
        plan = dataclasses.replace(base, setups=setups or base.setups, largest=largest, seconds=seconds or base.seconds)
        if not setups and balancer.find_program() is None:
            _notify(
                f"no gateways behind a balancer: {BALANCER_PROGRAM} is not installed (apt install {BALANCER_PROGRAM})"
            )
            plan = experiment_003.without_balancer(plan)
        todo = experiment_003.points(plan, folder)
        points.do(todo, folder, _notify)
        curves = experiment_003.collect_results(points.load(todo, folder))
        traced = [] if no_traces else traces_003.record(plan, folder, _notify)
        found = statements_003.statements(curves)
        made = charts_003.figures(curves, traced)
        title = f"Document 003, objects of up to {largest}"
        file = page.write_html(made, found, traced, folder, title, wide=outcome_003.WIDE)
        outcome_003.publish(made, curves, found, traced, publish or folder, ("tracer", *sys.argv[1:]), _notify)
    click.echo(statements.as_text(found))
    for each in traced:
        click.echo(f"{each.title}: tracer view {each.folder}")
    click.echo(f"charts: {file}; pictures and text: {(publish or folder) / page.TEXT}")


@paper.command("004")
@click.option("--quick", is_flag=True, help="One short run of each, in a minute.")
@_output("runs/paper-004")
@click.option(
    "--large-mb", type=click.IntRange(1), help="Size of a large object.  [default: 1024, or what the disk allows]"
)
@click.option("--seconds", type=click.FloatRange(1.0), help="Time of small reads and writes each.  [default: 60]")
@click.option("--rounds", type=click.IntRange(1), help="Runs of each; their medians count.  [default: 5]")
@_PUBLISH
def paper_004(
    quick: bool,
    folder: Path,
    large_mb: int | None,
    seconds: float | None,
    rounds: int | None,
    publish: Path | None,
) -> None:
    """350 KB by 256 workers for 60 s, and ten large objects, from seven hosts: op/s, MB/s, 90 % response time."""
    base = experiment_004.QUICK if quick else experiment_004.Plan()
    plan = dataclasses.replace(
        base,
        large_mb=large_mb or base.large_mb,
        runtime_s=seconds or base.runtime_s,
        runs_count=rounds or base.runs_count,
    )
    with operator_errors():
        _make_folders(folder, publish)
        todo = experiment_004.points(plan, folder)
        points.do(todo, folder, _notify)
        lines = experiment_004.table(points.load(todo, folder))
        drawn = pictures.draw(charts_004.figures(lines), publish or folder, _notify)
        text = experiment_004.publish(lines, todo, publish or folder, ("tracer", *sys.argv[1:]), drawn)
    click.echo(experiment_004.as_text(lines))
    click.echo(f"text: {text}")
