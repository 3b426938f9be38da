"""Which files are logs of which host: as captures are assigned.

HOST=FILE     a log of that host; HOST=DIR, all files in a folder
FILE          its host is the captured one whose name its own begins with (`web1.log`, `web1-access.log.2.gz`), else the
              one whose name its folder has
DIR           each folder below that has the name of a captured host holds its logs; a loose file is a FILE
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tracer.errors import InputError

MOST_FILES = 10_000
NO_LOGS = frozenset({"command.json", "samples.csv", "faults.jsonl"})
"""What this product keeps beside captures."""
_CAPTURE = re.compile(r"\.(pcap|pcapng|cap)\d*(\.(gz|zst))?$")


def log_files(place: str, hosts: Sequence[str]) -> list[tuple[str, Path]]:
    """The logs at a place, each with its host.

    Raises: `InputError` for what does not exist or holds no file, or a file of no captured host.
    """
    named, sign, rest = place.partition("=")
    if not sign or os.path.exists(place) or "/" in named or not named:
        return [(_host_of(path, hosts), path) for path in _files(Path(place))]
    if named not in hosts:
        raise InputError(f"--logs {place}: no captured host is called {named}", _list_hosts(hosts))
    return [(named, path) for path in _files(Path(rest))]


def _files(place: Path) -> list[Path]:
    if os.path.isfile(place):
        return [place]
    if not os.path.isdir(place):
        raise InputError(f"--logs {place}: no such file or folder", "give a log, HOST=FILE, or a folder of logs")
    found = sorted(_below(place))[: MOST_FILES + 1]
    if not found or len(found) > MOST_FILES:
        what = "holds no files" if not found else f"holds more than {MOST_FILES:,} files"
        raise InputError(f"--logs {place} {what}", "give a log, HOST=FILE, or a folder of logs")
    return found


def _below(folder: Path) -> Iterator[Path]:
    """Files in a folder and in those below it; captures, what is kept beside them, and hidden files aside."""
    for directory, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if not name.startswith(".") and name not in NO_LOGS and not _CAPTURE.search(name):
                yield Path(directory, name)


def _host_of(path: Path, hosts: Sequence[str]) -> str:
    begins = [host for host in hosts if re.match(rf"{re.escape(host)}(?![^._-])", path.name)]
    if begins:
        return max(begins, key=len)
    above = [part for part in reversed(path.resolve().parts[:-1]) if part in hosts]
    if above:
        return above[0]
    raise InputError(f"{path}: which captured host it is of cannot be seen", _list_hosts(hosts))


def _list_hosts(hosts: Sequence[str]) -> str:
    shown = ", ".join(hosts[:8]) + (", …" if len(hosts) > 8 else "")
    return f"give it as HOST=FILE, or name it or its folder after one of the captured hosts: {shown}"
