"""`tracer overhead`: measure what capturing costs a command on this host."""

import sys
from collections.abc import Callable

import click

from tracer.overhead import AgentRuns, Costs, Difference, compare, measure, run_command
from tracer.secret_rules import without_secrets

DEFAULT_TIMES = 10


@click.command("overhead", context_settings={"ignore_unknown_options": True, "max_content_width": 110})
@click.option("-i", "--interface", "interfaces", multiple=True, required=True, help="Interface to capture; repeatable.")
@click.option("--payload", default="heads", show_default=True, help="As of `tracer capture`.")
@click.option(
    "--times",
    type=click.IntRange(6, 1000),
    default=DEFAULT_TIMES,
    show_default=True,
    help="Pairs of runs; fewer than 6 show nothing at 95 %.",
)
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(*, interfaces: tuple[str, ...], payload: str, times: int, argv: tuple[str, ...]) -> None:
    """Run COMMAND in turns with and without an agent on this host, and say what the agent costs it.

    Say how many pairs with --times: of more, the intervals are narrower. COMMAND must succeed each time; its output is
    not shown. Run it on each host whose share counts: it sees what this host pays.
    """
    options = [*(word for name in interfaces for word in ("-i", name)), "--payload", payload]
    agent = AgentRuns(argv, options)
    found = measure(times, lambda: run_command(argv), agent.run, _say)
    for name, quantity in QUANTITIES:
        click.echo(difference_line(name, compare([(quantity(one), quantity(other)) for one, other in found])))
    costs, elapsed_s = agent.costs, sum(with_agent.elapsed_s for _, with_agent in found)
    each = f", {costs.cpu_s / costs.packets_count * 1e6:.1f} us a packet" if costs.packets_count else ""
    dropped = f"{costs.dropped_count:,} dropped" if costs.dropped_count else "none dropped"
    used = f"the agent used {100 * costs.cpu_s / elapsed_s:.2f} % of a core{each}"
    click.echo(f"{used}; {costs.packets_count:,} packets, {dropped}")


QUANTITIES: tuple[tuple[str, Callable[[Costs], float]], ...] = (
    ("time of the command", lambda costs: costs.elapsed_s),
    ("its CPU time", lambda costs: costs.cpu_s),
    ("CPU time of the machine", lambda costs: costs.busy_s),
)


def difference_line(name: str, found: Difference) -> str:
    """One quantity in words."""
    base = found.without or 1.0
    low, middle, high = (100 * value / base for value in (found.low, found.median, found.high))
    verdict = "" if found.is_visible else ", so no difference can be seen"
    return (
        f"{name}: {found.without:.3f} s without, {found.with_agent:.3f} s with an agent: "
        f"{middle:+.1f} % ({low:+.1f} to {high:+.1f} %, 95 %){verdict}"
    )


def _say(line: str) -> None:
    click.echo(without_secrets(f"tracer: {line}"), err=True)
    sys.stderr.flush()
