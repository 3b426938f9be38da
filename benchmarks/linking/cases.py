"""One recorded run on disk, ready to be scored again: captures, the servers' logs, what the clients measured.

CASE/case.json     what it is (`Case`)
CASE/captures/     a folder for each host, as `tracer record` keeps them
CASE/logs/         HOST/SERVICE.jsonl, the truth
CASE/requests.csv.zst   rows of `tracer bench`, if it was the load
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from storage_cluster.bench.results.rows import FILE_NAME, Row, read_rows

CASE_FILE = "case.json"


@dataclass(frozen=True, slots=True)
class Case:
    """What was recorded."""

    system: str
    objects: str  # how large, or "" where there are none
    at_once: int
    fault: str  # in words; "" for none
    client_host: str = "client"

    @property
    def words(self) -> str:
        """A row's first cell."""
        return ", ".join(filter(None, (self.system, self.objects, self.fault)))


def write_case(folder: Path, case: Case) -> None:
    """Say what the recording in `folder` is."""
    (folder / CASE_FILE).write_text(json.dumps(asdict(case), indent=1) + "\n")


def find_cases(folders: Sequence[Path]) -> list[tuple[Path, Case]]:
    """All recordings in and below the folders, by system, objects, fault, and how many at once."""
    files = {file for folder in folders for file in folder.rglob(CASE_FILE)}
    found = [(file.parent, Case(**json.loads(file.read_text()))) for file in files]
    return sorted(found, key=lambda each: (each[1].system, each[1].fault != "", each[1].words, each[1].at_once))


def rows_of(folder: Path) -> list[Row]:
    """What the load generator noted of each attempt; nothing if it was another load."""
    file = folder / FILE_NAME
    return list(read_rows(file)) if file.exists() else []
