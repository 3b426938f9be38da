"""One recording, replayed twice: as it is, and without any payload. Both held against the servers' logs."""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa

from benchmarks.linking import baselines
from benchmarks.linking.cases import Case, rows_of
from benchmarks.linking.payload import strip_folder
from benchmarks.linking.scoring import LedgerScore, LinkScore, WholeScore, score_ledgers, score_links, score_whole
from benchmarks.linking.truth import find_truth, read_logs
from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.trace.reading import Trace

METHODS: dict[str, Callable[[pa.Table], pl.DataFrame]] = {"FCFS": baselines.fcfs, "WAP5": baselines.wap5}
OURS = "ours"


@dataclass(frozen=True, slots=True)
class Scored:
    """What a recording gave; `hidden` by method."""

    case: Case
    exchanges_count: int
    whole: WholeScore
    ledger: LedgerScore
    hidden: dict[str, LinkScore]


def measure(folder: Path, case: Case) -> Scored:
    """Replay and score the recording in `folder`."""
    print(f"linking: scoring {case.words}, {case.at_once} at once", file=sys.stderr)
    logs = read_logs(folder / "logs")
    with tempfile.TemporaryDirectory(prefix="twintap-linking-") as name:
        seen = replay_tables(folder / "captures", Path(name) / "seen")
        bare = replay_tables(strip_folder(folder / "captures", Path(name) / "bare.captures"), Path(name) / "bare")
    truth = find_truth(seen["exchanges"], seen["connections"], logs)
    spans, exchanges = pl.DataFrame(seen["spans"]), pl.DataFrame(seen["exchanges"])
    return Scored(
        case,
        len(exchanges),
        score_whole(spans, exchanges, truth, case.client_host),
        score_ledgers(spans, exchanges, rows_of(folder), case.client_host),
        _score_without_ids(bare, logs),
    )


def replay_tables(captures: Path, trace: Path) -> dict[str, pa.Table]:
    """The tables `exchanges`, `spans` and `connections` of captures."""
    analyse(host_sources([str(captures)]), str(trace))
    return {name: Trace(str(trace)).read(name) for name in ("exchanges", "spans", "connections")}


def _score_without_ids(tables: dict[str, pa.Table], logs: pl.DataFrame) -> dict[str, LinkScore]:
    exchanges = tables["exchanges"]
    assert not exchanges["transaction_id"].is_valid().to_numpy().any(), "an id was left in a stripped capture"
    truth = find_truth(exchanges, tables["connections"], logs)
    ours = pl.DataFrame(tables["spans"]).select("confidence", exchange_id="span_id", parent_id="parent_span_id")
    links = {OURS: ours.drop_nulls("parent_id")} | {name: find(exchanges) for name, find in METHODS.items()}
    return {name: score_links(found, truth) for name, found in links.items()}
