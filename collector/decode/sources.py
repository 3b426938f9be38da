"""Converts the captures given on the command line to sources for the analysis, each with its host.

FILE          a capture; its host is what the agent wrote into it, else the file's stem
HOST=FILE     the same, of that host; HOST=DIR, all captures in a folder
SESSION       the folder of a session at a collector; several, of collectors that have a part each, are one session
DIR           every folder below is a host with its captures in order of name; a loose capture is a FILE

A folder that `tracer record` made also holds `command.json`, the command that ran, and when, and `samples.csv`, what
the hosts used meanwhile. With them a replay yields the same story as the recording did.
"""

import ipaddress
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from msgspec import to_builtins
from pyarrow import csv

from collector.capture_files.joined import file_runs
from collector.decode import incarnations
from collector.decode.host_capture import HostSource
from collector.trace.model import CommandInfo
from collector.trace.reading import Trace
from collector.trace.schema import TABLES
from tracer.errors import InputError
from tracer.plain_text import plain
from tracer.secret_rules import argv_without_secrets

CAPTURE_NAME = re.compile(r"\.(pcap|pcapng|cap)\d*(\.(gz|zst))?$")
"""File names of captures in a folder; `tcpdump -C` appends a number."""
COMMAND_FILE = "command.json"
SAMPLES_FILE = "samples.csv"
LAST_STAMP_NS = 1 << 62
"""In 2116."""
MOST_EXIT_STATUS = 1 << 16
GIVE_CAPTURES = "give capture files (.pcap, .pcapng), HOST=FILE, or a folder of them"


def host_sources(arguments: Sequence[str]) -> tuple[HostSource, ...]:
    """Sources for `collector.analysis.analyse`: those of sessions, then the others in the order given.

    (For a name that no file can have, `os.path` returns false; `pathlib` raises.)

    Raises: `InputError` for what does not exist or may not be read, or a folder without captures.
    """
    found: list[HostSource] = []
    sessions: list[Path] = []
    try:
        for argument in arguments:
            host, path = _split_argument(argument)
            if host is None and os.path.isdir(path) and incarnations.is_session(path):
                sessions.append(path)
            elif os.path.isdir(path):
                found.extend(_folder(host, path))
            elif os.path.exists(path):
                found.append(HostSource(host, (path,)))
            else:
                raise InputError(f"{path}: no such file or folder", GIVE_CAPTURES)
        stored = incarnations.stored_incarnations(*sessions)
    except PermissionError as error:
        raise InputError(f"{error.filename}: this user may not read it", "run as its owner, or with sudo") from None
    return (*incarnations.host_sources(incarnations.sequences(stored)), *found)


def host_addresses(arguments: Sequence[str]) -> dict[str, frozenset[str]]:
    """The addresses of each host from `HOST=IP`, as captures write them.

    Raises: `InputError` for what is not of that form.
    """
    found: dict[str, set[str]] = {}
    for argument in arguments:
        host, _, text = argument.partition("=")
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            address = None
        if not host or address is None:
            raise InputError(f"--address {argument} is not HOST=IP", "for example --address web=10.0.0.5")
        found.setdefault(plain(host), set()).add(str(address))
    return {host: frozenset(addresses) for host, addresses in found.items()}


def write_command(folder: Path, command: CommandInfo) -> None:
    """Write beside the captures which command ran meanwhile."""
    (folder / COMMAND_FILE).write_text(json.dumps(to_builtins(command), indent=1) + "\n")


def command_of(arguments: Sequence[str]) -> CommandInfo | None:
    """The command that ran while these captures were made, if they are one folder that records it.

    Raises: `InputError` if the record cannot be read.
    """
    file = Path(arguments[0]) / COMMAND_FILE
    if len(arguments) != 1 or not os.path.isfile(file):
        return None
    try:
        return _command(**json.loads(file.read_text()))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{file} is damaged ({error})", "remove it to replay without the command's times") from None


def _command(argv: Sequence[str], host: str, started_host_ns: int, ended_host_ns: int, exit_status: int) -> CommandInfo:
    """Raises: TypeError, ValueError for what is of another kind, or for a time that is none."""
    words = [host, *argv]
    if not isinstance(argv, list) or not all(isinstance(word, str) for word in words):
        raise TypeError("argv is no list of words, or host is none")
    for number in (started_host_ns, ended_host_ns, exit_status):
        if type(number) is not int:
            raise TypeError(f"{number!r:.40} is no whole number")
    if not 0 <= started_host_ns <= ended_host_ns < LAST_STAMP_NS or abs(exit_status) > MOST_EXIT_STATUS:
        raise ValueError("its times or its exit status cannot be")
    shown = argv_without_secrets(tuple(map(plain, argv)))
    return CommandInfo(shown, plain(host), started_host_ns, ended_host_ns, exit_status)


def samples_of(arguments: Sequence[str]) -> pa.Table | None:
    """The hosts' usage while these captures were made, if they are one folder that records it: a table `samples`.

    Raises: `InputError` if the record cannot be read.
    """
    file = Path(arguments[0]) / SAMPLES_FILE
    if len(arguments) != 1 or not os.path.isfile(file):
        return None
    kinds = {column.name: column.type for column in TABLES["samples"]}
    texts = {name: pa.string() if pa.types.is_dictionary(kind) else kind for name, kind in kinds.items()}
    options = csv.ConvertOptions(column_types=texts, include_columns=list(texts))
    try:
        return csv.read_csv(file, convert_options=options)
    except (pa.ArrowInvalid, KeyError) as error:
        reason = str(error).partition("\n")[0].strip("'\"")
        raise InputError(f"{file} is damaged ({reason})", "remove it to replay without what the hosts used") from None


def _split_argument(argument: str) -> tuple[str | None, Path]:
    """Host and path of `HOST=PATH`, unless a file has that whole name."""
    host, sign, rest = argument.partition("=")
    if not sign or os.path.exists(argument) or "/" in host or not host:
        return None, Path(argument)
    return host, Path(rest)


def _folder(host: str | None, folder: Path) -> list[HostSource]:
    if Trace(str(folder)).exists():
        raise InputError(f"{folder} is a trace already", f"look at it with: tracer report {folder}")
    loose = _captures(folder)
    if host is not None:
        found = [HostSource(host, tuple(loose))] if loose else []
    else:
        below = sorted(path for path in folder.iterdir() if path.is_dir())
        found = [HostSource(path.name, tuple(files), folder) for path in below if (files := _captures(path))]
        found += [HostSource(None, (path,)) for path in loose]
    if not found:
        raise InputError(f"{folder} holds no captures", GIVE_CAPTURES)
    return found


def _captures(folder: Path) -> list[Path]:
    found = [path for path in folder.iterdir() if CAPTURE_NAME.search(path.name) and path.is_file()]
    return [piece for path in sorted(found, key=_counting_order) for piece in file_runs(path)]


def _counting_order(path: Path) -> list[tuple[int, str]]:
    """A key by which `dump.pcap2` comes before `dump.pcap10`."""
    parts = re.split(r"(\d+)", path.name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
