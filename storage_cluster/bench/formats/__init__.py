"""Workload files, as people have them, into the one model."""

from pathlib import Path

from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.formats.cosbench import parse_cosbench
from storage_cluster.bench.formats.schedule import is_schedule, parse_schedule
from storage_cluster.bench.formats.ssbench import parse_ssbench
from storage_cluster.bench.formats.toml import Sweep, parse_toml
from storage_cluster.bench.model import Workload


def load(path: Path) -> tuple[Workload, Sweep]:
    """The workload in a file, whichever form it has, and the sweep that it asks for. Raises: WorkloadError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WorkloadError(f"{path} cannot be read ({error.strerror})", "give a workload file") from None
    return parse(content, path.name)


def parse(content: bytes, file: str) -> tuple[Workload, Sweep]:
    """The same from a file's content: COSBench's XML, ssbench's JSON, a trace's requests, or our TOML.

    Raises: WorkloadError.
    """
    start = content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start == b"<":
        return parse_cosbench(content, file), {}
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise WorkloadError(f"{file} is no text", "give COSBench XML, ssbench JSON or TOML") from None
    if is_schedule(text):
        return parse_schedule(text, file), {}
    return (parse_ssbench(text, file), {}) if start == b"{" else parse_toml(text, file)
