"""What a server is called by the process that owns it: evidence that no port number is, but less than its messages.

A program that runs others' programs says little (`java`, `python3`), and so does one that holds a port for another
(`docker-proxy`, systemd for a unit that is not started yet): `services.toml` lists both. Then the unit of systemd or
the pod names the server, if it is in one. Processes of several names at one server name nothing.
"""

from collections.abc import Iterable
from pathlib import PurePosixPath

from collector.services import services
from collector.services.servers import ServerOwner

COMM_LEN = 15
"""Characters of a process's name that the kernel keeps."""


def owner_name(owners: Iterable[ServerOwner]) -> str:
    """The one name by which the owners of a server go; "" if there is none."""
    names = {_name(owner) for owner in owners}
    return names.pop() if len(names) == 1 else ""


def owner_evidence(owners: Iterable[ServerOwner]) -> str:
    """The owners of a server, in words; "" for none."""
    said = sorted({_words(owner) for owner in owners} - {""})
    return f"its process is {' or '.join(said)}" if said else ""


def _name(owner: ServerOwner) -> str:
    process = _full_name(owner)
    if process and not services.is_any_program(process):
        return process
    unit = (owner.unit or "").removesuffix(".service")
    return unit or owner.pod or ""


def _full_name(owner: ServerOwner) -> str:
    """The process's name; that of its program's file, if the kernel cut it off."""
    program = PurePosixPath(owner.exe or "").name
    process = owner.process or ""
    return program if len(process) == COMM_LEN and program.startswith(process) else process


def _words(owner: ServerOwner) -> str:
    of = [
        owner.unit or "",
        f"container {owner.container}" if owner.container else "",
        f"pod {owner.pod}" if owner.pod else "",
    ]
    inside = ", ".join(part for part in of if part)
    name = _full_name(owner)
    if not name:
        return ""
    return f"{name} ({inside})" if inside else name
