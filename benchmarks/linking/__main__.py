"""`python -m benchmarks.linking [--quick]`: record and score; `record FOLDER`, `score FOLDER…`: either alone.

The table and the picture are those of docs/linking-accuracy.md, which `score --docs docs` writes. Recording needs
network namespaces, as root or as an ordinary user; scoring needs neither.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.linking import chain, record, table
from benchmarks.linking.cases import find_cases
from benchmarks.linking.measure import measure

LEVELS = (1, 8, 32, 128, 512, 2048)
FAULT_LEVELS = (8, 32, 512)
CHAIN_LEVELS = (1, 8, 32, 128)
FEWEST_OPERATIONS, MOST_OPERATIONS, EACH = 300, 4_000, 60
"""A run has so many operations for each worker, within these bounds."""


def main(argv: Sequence[str] | None = None) -> int:
    """Record, score, or both; the exit status is that of the process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.linking", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="?", choices=["record", "score"], help="default: both")
    parser.add_argument("folders", nargs="*", type=Path, help="recordings (record: where they go)")
    parser.add_argument("--quick", action="store_true", help="8 at once, one kind of object, no fault")
    parser.add_argument("--docs", type=Path, help="also write the page and its picture there")
    options = parser.parse_args(argv)
    if options.what == "score":
        return _score(options.folders, options.docs)
    if options.what == "record":
        _record(options.folders[0], options.quick)
        return 0
    with tempfile.TemporaryDirectory(prefix="twintap-linking-") as folder:
        _record(Path(folder), options.quick)
        return _score([Path(folder)], options.docs)


def _record(folder: Path, quick: bool) -> None:
    if quick:
        record.record(folder / "quick", "1,000 bytes", 8, "", FEWEST_OPERATIONS)
        return
    plans = [(objects, level, "") for objects in record.SIZES for level in LEVELS]
    plans += [("1 to 64 KB", level, fault) for fault in record.FAULTS for level in FAULT_LEVELS]
    for number, (objects, level, fault) in enumerate(plans):
        operations = min(MOST_OPERATIONS, max(FEWEST_OPERATIONS, EACH * level))
        record.record(folder / f"store-{number:02}", objects, level, fault, operations)
    for level in CHAIN_LEVELS:
        chain.record(folder / f"chain-{level}", level, min(MOST_OPERATIONS, max(FEWEST_OPERATIONS, EACH * level)))


def _score(folders: list[Path], docs: Path | None) -> int:
    scored = [measure(folder, case) for folder, case in find_cases(folders)]
    print("\n".join(table.lines(scored)))
    if docs is not None:
        table.write_page(scored, docs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
