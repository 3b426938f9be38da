"""Sends orders to a running cluster through a Unix socket in the state directory, one JSON line each way.

    {"order": "add", "fault": {…}}        ▶  {"ok": true, "ids": [3]}
    {"order": "clear", "ids": [3] | null} ▶  {"ok": true, "ids": [3]}        null: all
                                          ▶  {"ok": false, "error": …, "next_step": …}

The keeper answers when the order is carried out. It answers one caller at a time.
"""

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from storage_cluster.errors import NotRunningError
from storage_cluster.faults.kinds import FaultError

SOCKET_FILE = "control.sock"
PATIENCE_S = 90.0
"""How long a caller waits: starting servers again takes a second, on a loaded machine many."""
_CALLER_PATIENCE_S = 5.0
_ORDER_MAX_LEN = 1 << 16


def listen(state_dir: Path) -> socket.socket:
    """The keeper's listening socket. Raises: OSError."""
    (state_dir / SOCKET_FILE).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _short_path(state_dir) as path:
        listening.bind(path)
    os.chmod(state_dir / SOCKET_FILE, 0o600)
    listening.listen(8)
    return listening


def ask(state_dir: Path, order: Mapping[str, object]) -> Sequence[int]:
    """Send an order; returns the numbers of the faults that it concerned. Raises: FaultError, NotRunningError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        try:
            with _short_path(state_dir) as path:
                connection.connect(path)
            connection.sendall(json.dumps(order).encode() + b"\n")
            with connection.makefile("rb") as answers:
                answer = answers.readline()
        except OSError as error:
            raise NotRunningError(f"the cluster's keeper does not answer ({error})", "run: tracer cluster up") from None
    if not answer:
        raise NotRunningError("the cluster ended meanwhile", "run: tracer cluster up")
    said = json.loads(answer)
    if not said["ok"]:
        raise FaultError(said["error"], said["next_step"])
    return said["ids"]


def receive(connection: socket.socket) -> Mapping | None:
    """A caller's order; None if it sent none in time."""
    connection.settimeout(_CALLER_PATIENCE_S)
    with contextlib.suppress(OSError, json.JSONDecodeError), connection.makefile("rb") as lines:
        order = json.loads(lines.readline(_ORDER_MAX_LEN))
        return order if isinstance(order, dict) else None
    return None


def reply(connection: socket.socket, answer: Mapping[str, object]) -> None:
    """Answer a caller, if it is still connected."""
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(answer).encode() + b"\n")


@contextlib.contextmanager
def _short_path(state_dir: Path) -> Iterator[str]:
    """The socket's path in few bytes: the kernel takes 107, and state directories can be deep."""
    directory = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{SOCKET_FILE}"
    finally:
        os.close(directory)
