"""Logs to calls: the client's own lines, and the servers' access logs."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.real_systems.truth import Call


def client_calls(lines: str, server: str) -> list[Call]:
    """Of `benchmarks.real_systems.http_client`: a client's own requests, known by their number."""
    found = []
    for line in map(json.loads, lines.splitlines()):
        took = line["ended_ns"] - line["began_ns"]
        found.append(
            Call(
                id=f"client {line['n']}",
                server=server,
                target=line["target"],
                client_port=line["port"],
                started_ns=line["began_ns"],
                client_ns=took if line["status"] else None,
                connect_ns=line["connect_ns"],
                status=line["status"],
                parent="",
            )
        )
    return found


def number_of(target: str) -> int:
    """The number of the request that a target is of (`…n=17`)."""
    return int(target.rpartition("n=")[2])


def split_by_tabs(path: Path) -> list[list[str]]:
    """The lines of a log whose fields stand between tabs."""
    return [line.split("\t") for line in path.read_text("utf-8").splitlines()]


def with_server_times(calls: Iterable[Call], took_ns: Mapping[str, int], resolution_ns: int) -> None:
    """Set how long the server says each call took. Arguments: took_ns: by target."""
    for call in calls:
        call.server_ns = took_ns.get(call.target)
        call.server_resolution_ns = resolution_ns


def service_calls(
    path: Path, server: str, callers: Mapping[str, str], took_ns: Mapping[str, int] | None = None
) -> list[Call]:
    """Of `benchmarks.real_systems.http_service`.

    Arguments: callers: what a calling service names its own call, to that call's id; took_ns: `asked_ns` of the caller.
    """
    found = []
    for line in lines_of(path):
        of = line["judge"].split(" ")[0]
        found.append(
            Call(
                id=line["mine"],
                server=server,
                target=line["target"] if "n=" in line["target"] else "",
                client_port=line["port"],
                started_ns=line["began_ns"],
                server_ns=line["ended_ns"] - line["began_ns"],
                client_ns=None if took_ns is None else took_ns.get(line["judge"]),
                parent=callers.get(of, of),
            )
        )
    return found


def asked_ns(path: Path) -> dict[str, int]:
    """How long each call took the service of this log that made it, by `X-Judge`."""
    return {asked["judge"]: asked["took_ns"] for line in lines_of(path) for asked in line["asked"]}


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a log, each JSON."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def curl_calls(lines: str, server: str) -> list[Call]:
    """Of `curl --write-out CURL`, a line for each."""
    found = []
    for line in lines.splitlines():
        target, port, connect_s, ready_s, total_s, status, began = line.split("\t")
        opened = round(float(connect_s) * 1e9)
        found.append(
            Call(
                id=f"client {number_of(target)}",
                server=server,
                target=target,
                client_port=int(port),
                started_ns=int(began),
                client_ns=round((float(total_s) - float(ready_s)) * 1e9),
                connect_ns=opened,
                status=int(status),
                parent="",
            )
        )
    return found
