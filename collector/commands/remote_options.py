"""Options of `tracer record` that name hosts and the ways to them."""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from collector.remote.starts import OWNERS
from collector.remote.ways import WAYS, Way, check_ways, here_way, ssh_way

NAMES = {
    "kubectl": ("[NAMESPACE/]POD[/CONTAINER]", "Record this pod, through `kubectl exec`; may be given again."),
    "docker": ("CONTAINER", "Record this container, through `docker exec`; may be given again."),
    "nsenter": ("PID|NETNS", "Record this network namespace of this machine; may be given again."),
}


class RemoteChoice(Struct, frozen=True):
    """What the options say. Without `ways` the cluster is recorded."""

    ways: tuple[Way, ...]
    wanted: str
    payload: str
    interfaces: tuple[str, ...]
    owners: str
    goes_on_without: bool
    opens_page: bool | None


def remote_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add them; the command takes the arguments of `remote_choice`."""
    for option in reversed(_options()):
        command = option(command)
    return command


def _options() -> list[Callable[..., Any]]:
    return [
        click.option(
            "--ssh",
            multiple=True,
            metavar="HOST,…",
            help="Record these hosts, as ~/.ssh/config knows them; NAME=HOST names one in the trace.",
        ),
        *(
            click.option(f"--{kind}", multiple=True, metavar=metavar, help=text)
            for kind, (metavar, text) in NAMES.items()
        ),
        click.option("--here", is_flag=True, help="Record this machine, too, where COMMAND runs."),
        click.option(
            "--with",
            "wanted",
            type=click.Choice(["auto", "agent", "tcpdump"]),
            default="auto",
            show_default=True,
            help="What captures there: our agent (there, or sent along and removed), tcpdump, or the first that can.",
        ),
        click.option(
            "--interface",
            "interfaces",
            multiple=True,
            metavar="HOST=NAME",
            help="Capture this interface of that host; may be given again.  [default: those it is reached by]",
        ),
        click.option(
            "--payload", default="heads", show_default=True, metavar="none|heads|N", help="As of `tracer capture`."
        ),
        click.option(
            "--owners",
            type=click.Choice(list(OWNERS)),
            default="users",
            show_default=True,
            help="As of `tracer capture`, with which our agent is then run there: users, units and containers, or also "
            "processes, for which root keeps CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH.",
        ),
        click.option(
            "--anyway", "goes_on_without", is_flag=True, help="Record the others if a host cannot be recorded."
        ),
        click.option(
            "--ssh-config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Read FILE instead of ~/.ssh/config.",
        ),
        click.option(
            "--page/--no-page",
            "opens_page",
            default=None,
            help="Open the page after the report.  [default: on a terminal]",
        ),
    ]


def remote_choice(
    *,
    ssh: Sequence[str],
    ssh_config: Path | None,
    kubectl: Sequence[str],
    docker: Sequence[str],
    nsenter: Sequence[str],
    here: bool,
    wanted: str,
    payload: str,
    interfaces: Sequence[str],
    owners: str,
    goes_on_without: bool,
    opens_page: bool | None,
) -> RemoteChoice:
    """What the options say. Raises: InputError for names that are none; MissingDependencyError."""
    names = [name for given in ssh for name in given.split(",") if name]
    ways = [ssh_way(name, ssh_config) for name in names]
    for kind, given in (("kubectl", kubectl), ("docker", docker), ("nsenter", nsenter)):
        ways += [WAYS[kind](name) for name in given]
    if here:
        ways.append(here_way(socket.gethostname()))
    return RemoteChoice(check_ways(ways), wanted, payload, tuple(interfaces), owners, goes_on_without, opens_page)
