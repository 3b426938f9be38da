"""Runs clients of document 002 side by side, each on its host, and reads what their requests waited for.

As a command, for `tracer record`: `python -m storage_cluster.bench.paper.clients_002 STATE_DIR ORDERS.json OUT.json`.
"""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from storage_cluster.bench.errors import RunError
from storage_cluster.bench.paper.client_002 import Job, Outcome, outcome_of
from storage_cluster.hosts import cluster

MODULE = "storage_cluster.bench.paper.client_002"

Placed = tuple[str, Job]
"""A host, and what a client does on it."""


def run(state_dir: Path, placed: Sequence[Placed]) -> list[Outcome]:
    """What came of each, in order. Raises: RunError if a client says nothing."""
    running = cluster.status(state_dir)
    clients = [
        subprocess.Popen(
            [*running.host(host).enter, sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for host, _ in placed
    ]
    try:
        for client, (_, job) in zip(clients, placed, strict=True):
            assert client.stdin is not None
            client.stdin.write(json.dumps(dataclasses.asdict(job)))
            client.stdin.close()
            client.stdin = None
        return [_outcome(client, job) for client, (_, job) in zip(clients, placed, strict=True)]
    finally:
        for client in clients:
            client.kill()
            client.wait()


def _outcome(client: "subprocess.Popen[str]", job: Job) -> Outcome:
    said, errors = client.communicate()
    if client.returncode:
        why = (errors.strip().splitlines() or ["it said nothing"])[-1]
        raise RunError(f"the client {job.name} did not end ({why})", "see why, then run it again: what is done is kept")
    return outcome_of(json.loads(said))


def read_turns(state_dir: Path) -> Iterator[dict[str, Any]]:
    """What the storage servers noted of each turn, with the host."""
    for file in sorted(state_dir.glob("logs/*/object.turns.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            yield {"host": file.parent.name, **json.loads(line)}


def _main() -> None:
    state_dir, orders, out = map(Path, sys.argv[1:])
    placed = [(host, Job(**job)) for host, job in json.loads(orders.read_text("utf-8"))]
    outcomes = run(state_dir, placed)
    out.write_text(json.dumps([dataclasses.asdict(outcome) for outcome in outcomes]), "utf-8")


if __name__ == "__main__":
    _main()
