"""The segments of a host at the collector, by themselves and in joined files, read without the collector's readers."""

from collections.abc import Iterator
from pathlib import Path

import zstandard

from collector.capture_files.joined import parse_name, read_index
from tracer.segments import segment_name


def names_of(host: Path) -> set[str]:
    """Their names, `<incarnation>/<segment>`."""
    found = {f"{path.parent.name}/{path.name}" for path in host.glob("*/*.pcapng")}
    for path in host.glob("*/*.pcapng.zst"):
        found |= {_name_in(path, number) for number in read_index(path)["number"].tolist()}
    return found


def contents_of(host: Path) -> Iterator[tuple[str, bytes]]:
    """Their names and contents, each once."""
    seen = set()
    for path in host.glob("*/*.pcapng.zst"):
        with path.open("rb") as file:
            for record in read_index(path):
                name = _name_in(path, int(record["number"]))
                seen.add(name)
                yield name, zstandard.decompress(file.read(int(record["packed"])))
    for path in host.glob("*/*.pcapng"):
        if (name := f"{path.parent.name}/{path.name}") not in seen:
            yield name, path.read_bytes()


def _name_in(path: Path, number: int) -> str:
    names = parse_name(path.name)
    assert names is not None, path
    return f"{path.parent.name}/{segment_name(names.stem, number)}"
