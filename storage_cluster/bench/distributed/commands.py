"""`tracer bench driver` and `tracer bench controller`."""

import re
import socket
from pathlib import Path

import click

from storage_cluster.bench.cluster_store import on_client_host
from storage_cluster.bench.distributed.token import token_option
from storage_cluster.errors import MissingResourceError
from storage_cluster.hosts import cluster
from storage_cluster.hosts.cluster import ClusterStatus
from storage_cluster.hosts.state import default_state_dir
from storage_cluster.operator import operator_errors

_NAME = re.compile(r"[\w.-]+")


@click.command()
@click.option(
    "--listen", default="127.0.0.1:18088", show_default=True, metavar="ADDR:PORT", help="Port 0: any free one."
)
@click.option("--name", default=socket.gethostname, help="Name of this driver.  [default: this host's name]")
@click.option(
    "--data", default=Path("driver"), show_default=True, type=click.Path(path_type=Path, file_okay=False),
    help="Folder for its own parts of runs.",
)  # fmt: skip
@click.option(
    "--cluster", "on_cluster", is_flag=True,
    help="From the client host of the cluster that is up, on its store where a workload names none.",
)  # fmt: skip
@token_option("The token that requests must carry.")
def driver(*, listen: str, name: str, data: Path, on_cluster: bool, token: str) -> None:
    """Put load on a store as a controller orders, until Ctrl-C."""
    from storage_cluster.bench.distributed import driver as drivers  # noqa: PLC0415  FastAPI is slow to import
    from storage_cluster.bench.distributed import listening, service  # noqa: PLC0415

    with operator_errors():
        if not _NAME.fullmatch(name):
            raise MissingResourceError(f"--name {name!r} is no name", "use letters, digits, dots and dashes")
        listener = listening.take_over() or listening.bind(listen, token)
        running = _on_client_host(listener) if on_cluster else None
    host, port = listener.getsockname()[:2]
    click.echo(f"driver {name}: http://{host}:{port}  (Ctrl-C ends)")
    service.serve(drivers.create_app(name, data, token, running), listener)


def _on_client_host(listener: socket.socket) -> ClusterStatus:
    """The cluster, once this process is on its client host; orders still come by the socket outside."""
    from storage_cluster.bench.distributed import listening  # noqa: PLC0415  FastAPI is slow to import

    running = cluster.status(default_state_dir())
    if not cluster.inside(running.host(running.client_host)):
        listening.hand_on(listener)
    return on_client_host()


@click.command()
@click.option(
    "--listen", default="127.0.0.1:19088", show_default=True, metavar="ADDR:PORT", help="Port 0: any free one."
)
@click.option("--driver", "urls", multiple=True, required=True, metavar="URL", help="A driver; may be given again.")
@click.option(
    "--data", default=Path("runs"), show_default=True, type=click.Path(path_type=Path, file_okay=False),
    help="Where runs go.",
)  # fmt: skip
@click.option(
    "--on-loss",
    type=click.Choice(["continue", "stop"]),
    default="continue",
    show_default=True,
    help="What to do when a driver is lost.",
)
@click.option(
    "--viewer", default="http://127.0.0.1:8765", show_default=True, metavar="URL",
    help="Where `tracer view` shows the trace of a run: its page links requests there.",
)  # fmt: skip
@token_option("The token that requests must carry; also sent to the drivers.")
def controller(listen: str, urls: tuple[str, ...], data: Path, on_loss: str, viewer: str, token: str) -> None:
    """Split workloads over drivers and merge their results, until Ctrl-C; has a page."""
    from storage_cluster.bench.distributed import controller as controllers  # noqa: PLC0415  FastAPI is slow to import
    from storage_cluster.bench.distributed import listening, service  # noqa: PLC0415
    from storage_cluster.bench.distributed.remote import Driver  # noqa: PLC0415

    with operator_errors():
        wrong = [url for url in urls if "://" in url and not url.startswith(("http://", "https://"))]
        if wrong:
            raise MissingResourceError(f"--driver {wrong[0]} is no driver's address", "for example 127.0.0.1:18088")
        found = [Driver(url if "://" in url else f"http://{url}", token) for url in urls]
        listener = listening.bind(listen, token)
    host, port = listener.getsockname()[:2]
    asks = "its page asks for the token; " if token else ""
    click.echo(f"controller: http://{host}:{port}/  ({asks}Ctrl-C ends)")
    made = controllers.Controller(found, data, stop_on_loss=on_loss == "stop", viewer=viewer)
    service.serve(controllers.create_app(made, token), listener)
