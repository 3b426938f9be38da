"""The command line: `tracer COMMAND`. Each package adds its commands through the entry-point group `tracer.commands`.

A command is imported only when it is used, so an agent host needs no more than `tracer`'s own dependencies.
"""

import ctypes
import gc
import os
import signal
import sys
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from types import FrameType

import click

from tracer import interrupts
from tracer.errors import TracerError
from tracer.installation import install_command
from tracer.private_files import make_files_private
from tracer.secret_rules import without_secrets
from tracer.service_log import log_end

EXIT_OPERATOR = 2
"""Exit status for what the operator can mend: a wrong file, a missing privilege, a port in use."""

SUMMARIES = {
    "capture": "Record this host's TCP packets, to a directory or to a collector.",
    "record": "Capture on all hosts of the cluster while a command runs, then analyse.",
    "replay": "Turn captures of several hosts into a trace.",
    "collect": "Run the collector service that agents send to.",
    "report": "Show what happened in a trace and where the time went.",
    "why": "Show why a request took longer than others like it.",
    "what-if": "Show how long requests would have taken if the network or a server were otherwise.",
    "query": "Ask a trace anything in SQL.",
    "export": "Write a trace in another tool's format.",
    "scrub": "Copy a trace for sharing, with all names replaced.",
    "mcp": "Serve a trace to an assistant, by the Model Context Protocol.",
    "view": "Open a trace in the web viewer.",
    "overhead": "Measure what capturing costs a command on this host, in turns with and without.",
    "cluster": "Start, stop and use the bundled object store.",
    "bench": "Put load on an object store and measure it.",
}
"""Shown by `tracer --help`, which imports no command."""

PRIVATE = frozenset({"capture", "record", "replay", "collect", "view", "bench"})
"""Commands that keep packets, or what was asked of a store: what they write only its owner may read."""

EXTRAS = {"collector": "collector", "viewer": "viewer", "storage_cluster": "cluster"}
"""Package to the extra that installs what it needs."""
OWN_EXTRAS = {"mcp": "mcp"}
"""Module to the extra that installs just that, where a package needs it for one command only."""

ANALYSIS_CORE = "collector._core"
"""The extension of the distribution `twintap-core`, which the extras `collector` and `viewer` install."""


LIBRARY_SETTINGS = {
    "OPENBLAS_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": str(max(1, (os.cpu_count() or 1) // 2)),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""Settings of libraries, by the variable that they read when they are imported. Nothing is BLAS's work, but its threads
spin for a while after they start; partitions keep all cores busy, so polars' own only get in their way. What Arrow
frees the core takes again if both use one heap."""
M_ARENA_MAX = -8
"""Parameter of glibc's `mallopt`: how many heaps there are at most."""


class EntryPointGroup(click.Group):
    """A click group whose commands are entry points, loaded when used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of `SUMMARIES`, then others by name."""
        installed = {point.name for point in entry_points(group="tracer.commands")}
        return [name for name in SUMMARIES if name in installed] + sorted(installed - SUMMARIES.keys())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command, or a command that says which extra is missing."""
        if cmd_name in PRIVATE:
            make_files_private()
        if cmd_name == "replay":  # not `record`: what it records would inherit the settings
            set_up_libraries()
        for point in entry_points(group="tracer.commands", name=cmd_name):
            return _load(point)
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, SUMMARIES.get(name, "")) for name in self.list_commands(ctx)])


def set_up_libraries() -> None:
    """Have libraries that are imported from now on follow `LIBRARY_SETTINGS`, unless the environment says otherwise."""
    for name, value in LIBRARY_SETTINGS.items():
        os.environ.setdefault(name, value)
    if "MALLOC_ARENA_MAX" not in os.environ:
        share_one_heap()


def share_one_heap() -> None:
    """Have all threads of this process take memory from one heap. With a heap for each thread, what a stage frees in
    one is of no use to the next stage in another, and the system has to clear new pages for it.

    Of use before there are other threads. Without glibc nothing is changed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def _load(point: EntryPoint) -> click.Command:
    gc.disable()  # it would look a dozen times through all that is imported, for a sixth of the time
    try:
        command: click.Command = point.load()
    except ImportError as error:
        package = point.module.split(".", 1)[0]
        missing = _missing_module(error, package)
        if missing is None:
            raise
        extra = OWN_EXTRAS.get(missing.partition(".")[0], EXTRAS[package])
        raise click.ClickException(
            f"`tracer {point.name}` needs {missing}, which is not installed; run: {install_command(extra)}"
        ) from None
    finally:
        gc.freeze()  # nor later: what is imported stays
        gc.enable()
    return command


def _missing_module(error: ImportError, package: str) -> str | None:
    """What an extra of `package` would have installed; None if the error has another reason."""
    if package not in EXTRAS:
        return None
    if isinstance(error, ModuleNotFoundError) and error.name == package:  # an agent's Debian package, or single file
        return f"the package {package}"
    if "import name '_core'" in error.msg and find_spec(ANALYSIS_CORE) is None:
        return ANALYSIS_CORE
    is_of_another = isinstance(error, ModuleNotFoundError) and (error.name or "").split(".", 1)[0] != package
    return error.name if is_of_another else None


@click.command(cls=EntryPointGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="twintap", prog_name="tracer")
def tracer() -> None:
    """See, packet by packet and host by host, where a distributed system spends its time."""


def _end(number: int, _frame: FrameType | None) -> None:
    """Exit as after Ctrl-C, so that clean-up runs; further signals do not interrupt that."""
    for other in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(other, lambda *_: None)  # not ignored: programs that are started would inherit that
    sys.exit(128 + number)


def main() -> None:
    """Run the command line; print an operator's error in one line and exit 2."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)
    interrupts.reraise_lost_signals()
    try:
        tracer.main(standalone_mode=False)
    except TracerError as error:
        if not log_end(str(error)):
            click.echo(without_secrets(f"tracer: {error}"), err=True)
        sys.exit(EXIT_OPERATOR)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.Abort:
        click.echo("tracer: interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_OPERATOR)
    except BrokenPipeError:
        sys.exit(0)
