"""`tracer bench`: put load on an object store and measure it."""

import contextlib
import dataclasses
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
import uvloop
from click.core import ParameterSource

from storage_cluster.bench import formats, from_trace, parameters, simple, use
from storage_cluster.bench.cluster_store import is_of_cluster, names_its_store, on_client_host, store_of
from storage_cluster.bench.distributed.client import cancel, status, submit
from storage_cluster.bench.distributed.commands import controller, driver
from storage_cluster.bench.engine.connection import Timeouts
from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.formats import Sweep
from storage_cluster.bench.login_options import StoreWords, store_options
from storage_cluster.bench.model import Workload
from storage_cluster.bench.paper.commands import paper
from storage_cluster.bench.progress import Progress
from storage_cluster.bench.results import compare as comparing
from storage_cluster.bench.results import export, warp_run
from storage_cluster.bench.results import folder as folders
from storage_cluster.bench.results.folder import Run
from storage_cluster.bench.results.report_text import as_text
from storage_cluster.bench.run import local
from storage_cluster.bench.storage.opening import Login
from storage_cluster.errors import MissingResourceError
from storage_cluster.hosts import cluster
from storage_cluster.hosts.cluster import ClusterStatus
from storage_cluster.hosts.state import default_state_dir
from storage_cluster.operator import operator_errors
from tracer.scratch import Scratch, remove_leftovers
from tracer.secret_rules import argv_without_secrets

RUNS = Path("runs")
"""Where runs go by default."""
SIMPLE = ("put", "get")
_SIMPLE_OPTIONS = (
    *("count", "size_bytes", "concurrency", "retries_max", "container", "seconds", "connects_max", "connections_max"),
)


@click.group()
def command() -> None:
    """Put load on an object store and measure it."""


@command.command()
@click.argument("workload", metavar="put|get|FILE")
@click.option("--count", default=100, show_default=True, type=click.IntRange(1), help="put, get: operations to do.")
@click.option(
    "--size", "size_bytes", default=1000, show_default=True, type=click.IntRange(0), help="put, get: bytes per object."
)
@click.option(
    "--concurrency", default=1, show_default=True, type=click.IntRange(1, 4096), help="put, get: workers at once."
)
@click.option(
    "--retries", "retries_max", default=3, show_default=True, type=click.IntRange(0), help="put, get: per operation."
)
@click.option(
    "--connects",
    "connects_max",
    default=0,
    type=click.IntRange(0),
    help="put, get: attempts at a connection, of the retries; 0: all of them.",
)
@click.option(
    "--connections",
    "connections_max",
    default=0,
    type=click.IntRange(0),
    help="put, get: as many may be open; those beyond fail, as without open files. 0: all.",
)
@click.option("--seconds", default=0.0, type=click.FloatRange(0.0), help="put, get: end after this time, done or not.")
@click.option(
    "--container", default="bench", show_default=True, help="put, get: where the objects are; they stay there."
)
@click.option(
    "--set", "settings", multiple=True, metavar="PARAMETER=VALUE", help="Use this value instead of the file's."
)
@click.option("--sweep", "sweeps", multiple=True, metavar="PARAMETER=A,B,…", help="A run for each value.")
@click.option("--speed", type=click.FloatRange(0.001), help="FILE of a trace: so many times as fast.  [default: 1]")
@click.option("--cluster", "on_cluster", is_flag=True, help="FILE: use the cluster that is up, whatever FILE says.")
@store_options
@click.option(
    "--connect-timeout", "connect_s", default=10.0, show_default=True, type=click.FloatRange(0.001), help="Seconds."
)
@click.option(
    "--read-timeout",
    "read_s",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0.001),
    help="Seconds without a byte.",
)
@click.option("--seed", default=1, show_default=True, type=int, help="Seed of all random choices.")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the run's results.  [default for FILE: runs/<time>]",
)
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the summary here.")
@click.option(
    "--requests", "rows_file", type=click.Path(path_type=Path, dir_okay=False), help="Write each request here, as CSV."
)
def run(
    workload: str,
    *,
    settings: tuple[str, ...],
    sweeps: tuple[str, ...],
    speed: float | None,
    on_cluster: bool,
    store: StoreWords,
    connect_s: float,
    read_s: float,
    seed: int,
    folder: Path | None,
    json_file: Path | None,
    rows_file: Path | None,
    **simple_options: int | float | str,
) -> None:
    """Put or get objects, or run a workload file: COSBench XML, ssbench JSON or TOML.

    Reports throughput, latencies and failures; the slowest requests are shown with their transaction ids. With a
    cluster up it runs on the cluster's client host.
    """
    with operator_errors():
        made, sweep = _workload(workload, simple_options)
        given_settings = _pairs(settings) | ({"replay.replay.speed": f"{speed}"} if speed else {})
        for name, value in given_settings.items():
            made = parameters.change(made, name, value)
        sweep = sweep | {name: values.split(",") for name, values in _pairs(sweeps).items()}
        for line in (*made.notices, *_of_drivers(made)):
            click.echo(f"tracer: {line}", err=True)
        given = store.login()
        is_named = given is not None or names_its_store(made, on_cluster)
        running = on_client_host() if not is_named or is_of_cluster(made, given) else None
        login = given if is_named or running is None else store_of(running, made)
        _check_writable(json_file, rows_file)
        plan = _Plan(made, sweep, login, seed, Timeouts(connect_s, read_s), running)
        for line in remove_leftovers(Path(tempfile.gettempdir())):
            click.echo(f"tracer: {line}", err=True)
        with contextlib.ExitStack() as left:
            kept = folder or (_folder_for_now(left) if workload in SIMPLE else folders.make_unused(RUNS))
            done = _run(plan, kept)
            if rows_file:
                export.write_csv(done, rows_file)
            if json_file:
                export.write_summary(done, json_file)
    if folder or workload not in SIMPLE:
        click.echo(f"run: {kept}")
    if any(each.info.state != "done" for each in done) or (workload in SIMPLE and _failures_count(done)):
        sys.exit(1)


@command.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", *export.FORMATS]),
    default="text",
    show_default=True,
    help="cosbench: its CSV; ssbench: its report; json: everything.",
)
def report(folder: Path, form: str) -> None:
    """Show the results of a run, also of one that was killed."""
    with operator_errors():
        found = folders.load(folder)
        click.echo(as_text(found) if form == "text" else export.FORMATS[form](found))


@command.command()
@click.option(
    "-o",
    "--output",
    "file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="CSV with the columns of a trace's table `samples`.",
)
@click.option("--interval", "interval_s", default=1.0, show_default=True, type=click.FloatRange(0.1), help="Seconds.")
@click.option("--until-eof", is_flag=True, help="Also end when standard input does.")
def sample(file: Path, interval_s: float, until_eof: bool) -> None:
    """Record what each host of the cluster uses (CPU, disk, network), until Ctrl-C or SIGTERM."""
    with operator_errors():
        sampler = use.Sampler(cluster.status(default_state_dir()))
        _check_writable(file)
        use.sample_until_ended(sampler, file, interval_s, until_eof=until_eof)


@command.command("import")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the run.  [default: FILE's name without its endings]",
)
def import_file(file: Path, folder: Path | None) -> None:
    """Make a run of FILE, which MinIO's warp wrote: warp-OP-DATE-ID.csv.zst.

    It is reported, compared and shown beside a trace as any run: `tracer view TRACE --bench FOLDER`.
    """
    with operator_errors():
        kept = folder or Path(file.name.removesuffix(".zst").removesuffix(".csv"))
        words = argv_without_secrets(["tracer", "bench", "import", str(file)])
        done = warp_run.import_run(file, kept, shlex.join(words), _show_count)
        click.echo(as_text(done))
    click.echo(f"run: {kept}")


@command.command()
@click.argument("first", type=click.Path(path_type=Path, file_okay=False))
@click.argument("second", type=click.Path(path_type=Path, file_okay=False))
def compare(first: Path, second: Path) -> None:
    """Compare run SECOND with run FIRST: what differs, and whether it is more than chance (95 % intervals)."""
    with operator_errors():
        runs = folders.load(first), folders.load(second)
        click.echo(comparing.as_text(*runs, comparing.compare(*runs)))


command.add_command(from_trace.command)
command.add_command(driver)
command.add_command(controller)
command.add_command(submit)
command.add_command(status)
command.add_command(cancel)
command.add_command(paper)


@dataclasses.dataclass(frozen=True)
class _Plan:
    """The plan of one `run` command."""

    workload: Workload
    sweep: Sweep
    login: Login | None
    seed: int
    timeouts: Timeouts
    cluster: ClusterStatus | None  # whose hosts' use is sampled


def _workload(name: str, simple_options: Mapping[str, int | float | str]) -> tuple[Workload, Sweep]:
    if name in SIMPLE:
        return simple.workload(name, **simple_options), {}  # type: ignore[arg-type]
    context = click.get_current_context()
    for option in _SIMPLE_OPTIONS:
        if context.get_parameter_source(option) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--{option.split('_')[0]} is for put and get; for a file use --set")
    return formats.load(Path(name))


def _run(plan: _Plan, folder: Path) -> list[Run]:
    """A run for each combination of a sweep's values; each is reported when it is done."""
    done = []
    combinations = list(parameters.combinations(plan.sweep))
    for values in combinations:
        workload = plan.workload
        for name, value in values.items():
            workload = parameters.change(workload, name, value)
        where = folder / _folder_name(values) if values else folder
        progress = Progress()
        info = folders.describe(workload, shlex.join(argv_without_secrets(sys.argv)), values)
        running = local.run(
            workload,
            where,
            info,
            login=plan.login,
            seed=plan.seed,
            timeouts=plan.timeouts,
            watch=progress,
            sampler=use.Sampler(plan.cluster) if plan.cluster else None,
        )
        try:
            done.append(uvloop.run(running))
        finally:
            progress.end()
        click.echo(("\n" if len(done) > 1 else "") + as_text(done[-1]))
        if done[-1].info.state == "cancelled":
            break
    return done


def _show_count(doing: str, count: int) -> None:
    """Progress of a long import, on a terminal."""
    if count and sys.stderr.isatty():
        click.echo(f"\r{count:,} operations {doing}\x1b[K\r", nl=False, err=True)


def _folder_name(values: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in values.items()).replace("/", "_")


def _of_drivers(workload: Workload) -> Iterator[str]:
    """Works that a file gives to one driver of several."""
    for work in (work for stage in workload.stages for work in stage.works if work.driver):
        yield f"work {work.name} is for driver {work.driver}; without a controller it is done here"


def _folder_for_now(stack: contextlib.ExitStack) -> Path:
    """The folder of a run that is not kept; removed when the stack closes or, after a SIGKILL, by the next run."""
    scratch = Scratch()
    stack.callback(scratch.cleanup)
    return Path(scratch.name) / "run"


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    """Splits `NAME=VALUE`. Raises: WorkloadError."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise WorkloadError(f"{text} is not PARAMETER=VALUE", "for example main.workers=8")
        found[name] = value
    return found


def _failures_count(done: Sequence[Run]) -> int:
    return sum(each.tally.total().failures_count for each in done)


def _check_writable(*files: Path | None) -> None:
    """Check before a long run that its result can be written."""
    for file in files:
        if file is not None and not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
            raise MissingResourceError(f"{file} cannot be written", "choose another place")
