"""A service that is a command of the topology's own, as `[commands]` names one.

    [services]                      [commands]
    cache = 11211                   cache = ["memcached", "-u", "nobody", "-l", "{address}", "-p", "{port}"]

The process becomes the command, so faults and `status` find it where they find a server of ours. Its output is
`logs/HOST/SERVICE.log`. A child looks until something listens on the port, says `ready`, and ends.

Source: proc(5), /proc/net/tcp (state 0A is LISTEN; addresses and ports are hexadecimal).
"""

import os
import time
from pathlib import Path
from typing import NoReturn

from storage_cluster.topology import Service

_LOOK_AGAIN_S = 0.02
_LISTENS = "0A"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def become_command(service: Service, logs_dir: Path) -> NoReturn:
    """Become the command; prints `ready` once it listens. Raises: OSError if it cannot be run."""
    command = os.getpid()
    if os.fork() == 0:
        if os.fork() == 0:
            _report_ready(service.port, command)
        os._exit(0)
    os.wait()
    log = os.open(logs_dir / f"{service.name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    os.dup2(log, 1)
    os.execvp(service.command[0], service.command)


def _report_ready(port: int, command: int) -> NoReturn:
    """Say that the port is open, as soon as it is; nothing if the command ends before."""
    while not is_open(port) and _runs(command):
        time.sleep(_LOOK_AGAIN_S)
    if is_open(port):
        os.write(1, b"ready\n")
    os._exit(0)


def _runs(pid: int) -> bool:
    """Whether the process has not ended; one that nobody has waited for yet has no program any more."""
    try:
        return bool(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False


def is_open(port: int) -> bool:
    """Whether something on this host listens on the port."""
    for table in _TABLES:
        try:
            lines = Path(table).read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for cells in map(str.split, lines):
            if cells[3] == _LISTENS and int(cells[1].rpartition(":")[2], 16) == port:
                return True
    return False
