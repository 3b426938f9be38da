"""Segment files of a host: `FOLDER/<stem>-000001.pcapng`, counted from 1, written by the core under `….partial` first.

The stem is the host's name; of segments for a collector it is `<host>-<incarnation>`. An incarnation is one start of an
agent: its time (UTC) and a random number. So what two agents of one name send never has the same name, be it the same
host's after a restart, one that was installed anew and has forgotten what it sent, or a cloned machine with the
original's name.

A partial file that exists when a capture starts was left by one that was killed. Its complete blocks are kept:
truncated after the last of them, it is a readable capture and gets its final name. Nothing is overwritten.
"""

import os
import re
import secrets
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from tracer.errors import InputError

PARTIAL_SUFFIX = ".partial"

NAME_PATTERN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
"""Of a host or session: it becomes a file name here and at the collector, so no separators and no leading dot."""

INCARNATION_PATTERN = re.compile(r"\d{8}T\d{6}-[0-9a-f]{6}")
"""In the order of such names agents were started, as far as their clocks say."""

_SEGMENT_PATTERN = re.compile(r"-(\d{6,10})\.pcapng(?:\.partial)?")
_BLOCK_HEADER = struct.Struct("<II")
_SECTION_HEADER_BLOCK = 0x0A0D0D0A
_ENHANCED_PACKET_BLOCK = 6


def check_name(kind: str, name: str) -> str:
    """Return `name`, which is fit to be a file name.

    Arguments: `kind`, what it names, for the message ("host", "session").
    Raises: InputError if it is not.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise InputError(
            f"{name!r} is no name for a {kind}",
            "use up to 64 letters, digits, '.', '_' and '-', no '.' or '-' at the ends",
        )
    return name


def new_incarnation() -> str:
    """Return the name of a start of an agent now."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def check_incarnation(name: str) -> str:
    """Return `name`. Raises: InputError if it is not the name of an incarnation."""
    if not INCARNATION_PATTERN.fullmatch(name):
        raise InputError(f"{name!r} is no agent's incarnation", "use an agent of this version")
    return name


def incarnation_stem(host: str, incarnation: str) -> str:
    """Return the stem of an incarnation's segments."""
    return f"{host}-{incarnation}"


def segment_name(stem: str, number: int) -> str:
    """Return a segment's file name. Numbers count from 1."""
    return f"{stem}-{number:06d}.pcapng"


def segment_number(stem: str, name: str) -> int | None:
    """Return the number in a file name, `None` if it is no segment (whole or partial) with that stem."""
    found = _SEGMENT_PATTERN.fullmatch(name.removeprefix(stem)) if name.startswith(stem) else None
    return int(found[1]) if found else None


def segments(folder: Path, stem: str) -> list[tuple[int, Path]]:
    """Return (number, path) of the whole segments with a stem in a folder, in order."""
    found = [(segment_number(stem, path.name), path) for path in folder.iterdir() if path.suffix == ".pcapng"]
    return sorted((number, path) for number, path in found if number is not None)


def next_number(folder: Path, stem: str) -> int:
    """Return the first number above all segments with a stem in a folder."""
    numbers = [segment_number(stem, path.name) for path in folder.iterdir()]
    return max((number for number in numbers if number is not None), default=0) + 1


def segment_time_ns(path: Path, default_ns: int) -> int:
    """Return when a segment was completed, by the host's clock; `default_ns` if it is no longer there."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return default_ns


def rescue_partials(folder: Path, stem: str) -> list[str]:
    """Give the whole blocks of files left by a killed capture their final name; a line for the operator on each."""
    return [
        _rescue(path)
        for path in sorted(folder.glob(f"*{PARTIAL_SUFFIX}"))
        if segment_number(stem, path.name) is not None
    ]


def whole_blocks_len(path: Path) -> int:
    """Bytes of the whole blocks at the start of a file that the core wrote."""
    return _whole_blocks(path)[0]


def _rescue(partial: Path) -> str:
    whole_len, packets_count = _whole_blocks(partial)
    if packets_count == 0:
        partial.unlink()
        return f"removed {partial.name}, left without a packet by an interrupted capture"
    with partial.open("r+b") as file:
        file.truncate(whole_len)
        os.fsync(file.fileno())
    partial.rename(partial.with_suffix(""))
    return f"kept {packets_count} packets of {partial.stem}, left by an interrupted capture"


def _whole_blocks(path: Path) -> tuple[int, int]:
    """(bytes, packets) of the whole blocks at the start of a file that the core wrote."""
    end = packets_count = 0
    for block_type, block_end in _blocks(path):
        end = block_end
        packets_count += block_type == _ENHANCED_PACKET_BLOCK
    return end, packets_count


def _blocks(path: Path) -> Iterator[tuple[int, int]]:
    """(type, offset of its end) of each whole block."""
    size = path.stat().st_size
    at = 0
    with path.open("rb") as file:
        while len(header := file.read(_BLOCK_HEADER.size)) == _BLOCK_HEADER.size:
            block_type, total_len = _BLOCK_HEADER.unpack(header)
            at += total_len
            if total_len < 12 or at > size or (at == total_len and block_type != _SECTION_HEADER_BLOCK):
                return
            yield block_type, at
            file.seek(at)
