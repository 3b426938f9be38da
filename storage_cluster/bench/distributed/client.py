"""`tracer bench submit`, `status` and `cancel`: what the controller's page does, from a terminal or a script."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from storage_cluster.bench.distributed.token import token_option
from storage_cluster.bench.errors import RunError, WorkloadError
from storage_cluster.bench.login_options import StoreWords, store_options
from storage_cluster.errors import NotRunningError
from storage_cluster.operator import operator_errors

if TYPE_CHECKING:
    import httpx

LOOK_INTERVAL_S = 0.5
ANSWER_TIMEOUT_S = 30.0
_WAITING = ("queued", "running", "paused")
_url = click.argument("url", metavar="URL")
_run = click.argument("run", metavar="RUN")
_token = token_option("The controller's.")


@click.command()
@_url
@click.argument("workload", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--set", "settings", multiple=True, metavar="PARAMETER=VALUE", help="Use this value instead of the file's."
)
@store_options
@click.option("--wait", is_flag=True, help="Until it is done; then print its report. Exit 1 if it failed.")
@_token
def submit(*, url: str, workload: Path, settings: tuple[str, ...], store: StoreWords, wait: bool, token: str) -> None:
    """Give WORKLOAD to the controller at URL, which runs it on its drivers; prints the run's name."""
    with operator_errors(), _controller(url, token) as controller:
        try:
            content = workload.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise WorkloadError(f"{workload} cannot be read ({error})", "give a workload file") from None
        pairs = dict(setting.partition("=")[::2] for setting in settings)
        body = {"file": workload.name, "content": content, "settings": pairs}
        body |= store.as_submitted()
        run = _json_answer(controller.post("/api/runs", json=body))["id"]
        click.echo(run)
        if not wait:
            return
        while (found := _json_answer(controller.get(f"/api/runs/{run}")))["state"] in _WAITING:
            time.sleep(LOOK_INTERVAL_S)
        if found["state"] == "cancelled" and not found["moments"]:
            raise RunError(f"{run} was called off before it began", "submit it again")
        click.echo(controller.get(f"/api/runs/{run}/report").text)
    raise SystemExit(0 if found["state"] == "done" else 1)


@click.command()
@_url
@click.argument("run", metavar="[RUN]", default="")
@_token
def status(url: str, run: str, token: str) -> None:
    """Show the drivers and runs of the controller at URL; or how RUN goes, and its report once it is done."""
    with operator_errors(), _controller(url, token) as controller:
        if not run:
            found = _json_answer(controller.get("/api/state"))
            for driver in found["drivers"]:
                click.echo(f"driver {driver['name']:<16} {'answers' if driver['alive'] else 'does not answer'}")
            for each in found["runs"]:
                click.echo(_line(each))
            return
        found = _json_answer(controller.get(f"/api/runs/{run}"))
        if found["state"] == "unreadable":
            raise RunError(f"the controller knows no run {run}", f"it lists them with: tracer bench status {url}")
        click.echo(_line(found))
        for moment in found["moments"][-1:]:
            click.echo(
                f"{moment['stage']}: {moment['operations_count']:,} operations in {moment['elapsed_s']:.1f} s, "
                f"{moment['failures_count']:,} failed, {moment['retries_count']:,} retries"
            )
        if found["state"] not in _WAITING:
            answer = controller.get(f"/api/runs/{run}/report")
            click.echo(answer.text if answer.is_success else "it has no report")


@click.command()
@_url
@_run
@_token
def cancel(url: str, run: str, token: str) -> None:
    """Cancel RUN: requests under way end, none begin any more, and the results so far are kept."""
    with operator_errors(), _controller(url, token) as controller:
        _json_answer(controller.post(f"/api/runs/{run}/cancel"))
    click.echo(f"{run} is called off")


@contextmanager
def _controller(url: str, token: str) -> "Iterator[httpx.Client]":
    """A client of the controller. Raises: NotRunningError if it does not answer."""
    import httpx  # noqa: PLC0415  every `tracer bench` would wait for it

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    base = url if "://" in url else f"http://{url}"
    try:
        with httpx.Client(base_url=base, headers=headers, timeout=ANSWER_TIMEOUT_S, trust_env=False) as client:
            yield client
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NotRunningError(
            f"the controller at {base} does not answer ({error})", "start one: tracer bench controller"
        ) from None


def _json_answer(answer: "httpx.Response") -> Any:
    """The controller's answer. Raises: RunError with the controller's message."""
    if not answer.is_success:
        _raise_refusal(answer)
    return answer.json() if answer.content else None


def _raise_refusal(answer: "httpx.Response") -> NoReturn:
    try:
        detail = str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = answer.text
    what, _, next_step = detail.partition("; ")
    raise RunError(
        f"the controller refused ({answer.status_code}): {what}", next_step or "see: tracer bench status URL"
    )


def _line(run: dict[str, Any]) -> str:
    lost = f"  lost: {', '.join(run['lost'])}" if run["lost"] else ""
    note = f"  {run['note']}" if run["note"] else ""
    return f"run {run['id']:<20} {run['state']:<10} {run['name']}{note}{lost}"
