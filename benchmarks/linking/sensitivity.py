"""What each tuned number of link inference changes: `python -m benchmarks.linking.sensitivity [RECORDING…]`.

All numbers of `collector/core/links/src/tuning.rs` are tried at ×0.75 and ×1.25, one at a time, on the systems of
`benchmarks.linking.systems` and on recordings without payload (of `python -m benchmarks.linking record`). One that
changes no link and no confidence there is tried at ×0.5 and ×2 as well. The bundled captures are too short: a kind of
which there are fewer than 20 calls is not judged.

1. The columns that the core's `link_exchanges` receives are recorded for each system and recording.
2. The core's example `link_columns`, built with the feature `tunable`, links all of them for each value of each number.
3. Scored are calls with a known parent. *right*: the share whose link leads to it; a call without a link is not right.
   *ECE*: as in `benchmarks.linking.scoring`, over all links. Both as differences from the defaults.

Cost: about 3 s of CPU time for each value, at idle priority, in one thread.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import click
import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.linking.cases import find_cases
from benchmarks.linking.measure import replay_tables
from benchmarks.linking.payload import strip_folder
from benchmarks.linking.scoring import BINS
from benchmarks.linking.systems import SYSTEMS
from benchmarks.linking.truth import ROOT, Truth, find_truth, read_logs
from collector.requests import parents
from collector.requests.inferred_parents import Inferred, core_columns, infer_links
from collector.requests.spans import link

ROOT_FOLDER = Path(__file__).parent.parent.parent
FACTORS, WIDE_FACTORS = (0.75, 1.25), (0.5, 2.0)
COLUMNS = (
    *("client_host", "server_host", "service", "connection_id", "connect_start_ns", "request_first_sent_ns"),
    *("request_first_received_ns", "response_first_sent_ns", "response_first_received_ns", "response_last_sent_ns"),
    *("response_last_received_ns", "given_up_ns", "request_bytes", "response_bytes", "method"),
)
"""In the order in which `link_columns` reads them; `words` comes last."""
SHARES = ("_share", "_probability", "_confidence", "_percent")
NONE, UNKNOWN = -1, -2
MARKS = ("<!-- sensitivity -->", "<!-- /sensitivity -->")

Columns = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Case:
    """What the core is asked once, and the truth; lines as in `benchmarks.linking.truth`, of each exchange."""

    name: str
    columns: Columns
    line: NDArray[np.int64]  # UNKNOWN where no log mentions it
    true_line: NDArray[np.int64]  # its parent's line; ROOT, or UNKNOWN

    @property
    def is_scored(self) -> NDArray[np.bool_]:
        """Exchanges whose parent is asked for and known."""
        return (self.columns["client_host"] != NONE) & (self.true_line != UNKNOWN)


@dataclass(frozen=True, slots=True)
class Linked:
    """The links of all cases, one after another."""

    parent: NDArray[np.int64]
    confidence: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Score:
    """How right the links are."""

    calls_count: int
    right_share: float
    calibration_error: float


@dataclass(frozen=True, slots=True)
class Number:
    """A tuned number."""

    name: str
    value: float
    is_whole: bool

    def times(self, factor: float) -> float:
        """Its value times `factor`; a whole number stays whole, and differs. Of a share near 1 the rest is scaled: 0.95
        becomes 0.9375 at ×1.25, since 1.1875 would mean nothing."""
        most = 100.0 if self.name.endswith("_percent") else 1.0
        is_near_most = self.name.endswith(SHARES) and self.value > most / 2
        scaled = most - (most - self.value) * factor if is_near_most else self.value * factor
        if not self.is_whole:
            return scaled
        return float(max(0, int(np.floor(scaled) if scaled < self.value else np.ceil(scaled))))


@dataclass(frozen=True, slots=True)
class Effect:
    """What a value of a number changes."""

    factor: float
    links_changed: int
    right_change: float
    error_change: float

    @property
    def is_none(self) -> bool:
        """Whether all links and confidences stayed as they were."""
        return self.links_changed == 0


def record_cases(exchanges: pa.Table, truth: Truth, name: str) -> list[Case]:
    """What the core is asked for these exchanges."""
    line_of = dict(truth.exchanges.select("exchange_id", "line").iter_rows())
    parent_of = dict(truth.lines.drop_nulls("parent").select("line", "parent").iter_rows())
    cases = []

    def infer(rows: pl.DataFrame, in_scope: NDArray[np.bool_], words: NDArray[np.uint32]) -> Inferred:
        lines = [line_of.get(number, UNKNOWN) for number in rows["exchange_id"]]
        true_lines = [parent_of.get(line, UNKNOWN) for line in lines]
        columns = core_columns(rows, in_scope, words)
        cases.append(Case(name, columns, np.array(lines, np.int64), np.array(true_lines, np.int64)))
        return infer_links(rows, in_scope, words)

    with patch.object(parents, "infer_links", infer):
        link(exchanges)
    return cases


def simulated_cases() -> Iterator[Case]:
    """All of `SYSTEMS`."""
    for name, system in SYSTEMS.items():
        exchanges, parent_of = system.run()
        ids = exchanges["exchange_id"].to_pylist()
        known = pl.DataFrame({"exchange_id": ids, "line": ids}, {"exchange_id": pl.Int64, "line": pl.Int64})
        lines = known.select("line", parent=pl.Series([parent_of.get(number, ROOT) for number in ids], dtype=pl.Int64))
        yield from record_cases(exchanges, Truth(known, lines), name)


def recorded_cases(recordings: Sequence[Path], folder: Path) -> Iterator[Case]:
    """Recordings without payload; the servers' logs say what is true."""
    for number, (recording, case) in enumerate(find_cases(recordings)):
        bare = replay_tables(strip_folder(recording / "captures", folder / f"{number}.captures"), folder / f"{number}")
        truth = find_truth(bare["exchanges"], bare["connections"], read_logs(recording / "logs"))
        yield from record_cases(bare["exchanges"], truth, f"{case.words}, {case.at_once} at once")


def write_cases(cases: Iterable[Case], file: Path) -> None:
    """As `link_columns` reads them."""
    with file.open("wb") as stream:
        for case in cases:
            stream.write(np.int64(len(case.line)).tobytes())
            for name in COLUMNS:
                stream.write(case.columns[name].astype("<i8").tobytes())
            stream.write(case.columns["words"].astype("<u4").tobytes())


def build_linker() -> Path:
    """The core's example, built with replaceable numbers."""
    words = ("cargo", "build", "-q", "--release", "-p", "twintap-links", "--features", "tunable")
    subprocess.run([*words, "--example", "link_columns"], check=True, cwd=ROOT_FOLDER)
    return ROOT_FOLDER / "target/release/examples/link_columns"


def list_numbers(linker: Path) -> list[Number]:
    """All tuned numbers with their defaults."""
    lines = subprocess.run([linker, "--list"], check=True, capture_output=True, text=True).stdout.splitlines()
    fields = (line.split() for line in lines)
    return [Number(name, float(value), is_whole == "true") for name, value, is_whole in fields]


def run_linker(linker: Path, file: Path, cases: Sequence[Case], setting: str = "") -> Linked:
    """Link all cases with numbers replaced as `setting` has it."""
    changed = {"TWINTAP_LINKS_TUNING": setting, "RAYON_NUM_THREADS": "1"}
    words = ["nice", "-n", "19", str(linker), str(file)]
    output = subprocess.run(words, check=True, capture_output=True, env=os.environ | changed).stdout
    parent, confidence, at = [], [], 0
    for case in cases:
        length = 8 * len(case.line)
        parent.append(np.frombuffer(output[at : at + length], "<i8"))
        confidence.append(np.frombuffer(output[at + length : at + 2 * length], "<f8"))
        at += 2 * length
    return Linked(np.concatenate(parent), np.concatenate(confidence))


def right_links(cases: Sequence[Case], linked: Linked) -> NDArray[np.bool_]:
    """Whether each exchange's link leads to its true parent, or to another exchange of the same logged request."""
    found, at = [], 0
    for case in cases:
        parent = linked.parent[at : at + len(case.line)]
        parent_line = np.where(parent == NONE, UNKNOWN, case.line[parent])
        found.append((parent_line != UNKNOWN) & ((parent_line == case.true_line) | (parent_line == case.line)))
        at += len(case.line)
    return np.concatenate(found)


def score(cases: Sequence[Case], linked: Linked) -> Score:
    """Over all calls and links of all cases."""
    right, scored = right_links(cases, linked), np.concatenate([case.is_scored for case in cases])
    calls = scored & (np.concatenate([case.true_line for case in cases]) != ROOT)
    links = scored & (linked.parent != NONE)
    place = np.clip((linked.confidence[links] * BINS).astype(np.int64), 0, BINS - 1)
    apart = np.bincount(place, linked.confidence[links] - right[links], BINS)
    return Score(int(calls.sum()), float(right[calls].mean()), float(np.abs(apart).sum() / max(1, links.sum())))


def score_by_system(cases: Sequence[Case], linked: Linked) -> list[tuple[str, Score]]:
    """The score of each system or recording."""
    found, at = [], 0
    for case in cases:
        part = slice(at, at + len(case.line))
        found.append((case.name, score([case], Linked(linked.parent[part], linked.confidence[part]))))
        at += len(case.line)
    return [(name, each) for name, each in found if each.calls_count]


def measure_number(linker: Path, file: Path, cases: Sequence[Case], number: Number, default: Linked) -> list[Effect]:
    """The effects of ±25 %, and if there is none of half and double."""
    before = score(cases, default)

    def effect(factor: float) -> Effect:
        linked = run_linker(linker, file, cases, f"{number.name}={number.times(factor)}")
        after = score(cases, linked)
        changed = (linked.parent != default.parent) | (linked.confidence != default.confidence)
        return Effect(
            factor,
            int(changed.sum()),
            after.right_share - before.right_share,
            after.calibration_error - before.calibration_error,
        )

    effects = [effect(factor) for factor in FACTORS]
    if all(each.is_none for each in effects):
        effects += [effect(factor) for factor in WIDE_FACTORS]
    return effects


def table_lines(effects: Iterable[tuple[Number, list[Effect]]]) -> Iterator[str]:
    """The table, in Markdown; a cell says how many percent more links are right, and how much larger the ECE is."""
    yield "| number | default | ×0.75: right, ECE | ×1.25: right, ECE | ×0.5 | ×2 |"
    yield "|---|--:|--:|--:|--:|--:|"
    for number, each in effects:
        cells = [_cell(effect) for effect in each] + [""] * (len(FACTORS) + len(WIDE_FACTORS) - len(each))
        yield f"| `{number.name}` | {number.value:g} | {' | '.join(cells)} |"


def _cell(effect: Effect) -> str:
    if effect.is_none:
        return "–"
    return f"{effect.right_change:+.2%}, {effect.error_change:+.4f}"


def default_lines(cases: Sequence[Case], linked: Linked) -> Iterator[str]:
    """The score of each system with the defaults, in Markdown."""
    yield "| data | calls | right | ECE |\n|---|--:|--:|--:|"
    for name, each in [*score_by_system(cases, linked), ("all", score(cases, linked))]:
        yield f"| {name} | {each.calls_count:,} | {each.right_share:.2%} | {each.calibration_error:.3f} |"


def write_page(lines: Sequence[str], page: Path) -> None:
    """Put the tables between the marks of the page."""
    begin, end = MARKS
    text = re.sub(f"(?s){begin}.*{end}", lambda _: "\n".join((begin, "", *lines, "", end)), page.read_text())
    page.write_text(text)


@click.command(help=(__doc__ or "").splitlines()[0])
@click.argument("recordings", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--only", multiple=True, help="Measure this number only; may be given again.")
@click.option(
    "--docs", type=click.Path(exists=True, path_type=Path), help="Also write the tables into linking-tuning.md there."
)
def main(recordings: tuple[Path, ...], only: tuple[str, ...], docs: Path | None) -> None:
    """Print both tables."""
    linker = build_linker()
    with tempfile.TemporaryDirectory(prefix="twintap-sensitivity-") as name:
        folder = Path(name)
        cases = [*simulated_cases(), *recorded_cases(recordings, folder)]
        file = folder / "cases"
        write_cases(cases, file)
        default = run_linker(linker, file, cases)
        lines = [*default_lines(cases, default), ""]
        effects = []
        for number in list_numbers(linker):
            if not only or number.name in only:
                effects.append((number, measure_number(linker, file, cases, number, default)))
                print(f"sensitivity: {number.name}", file=sys.stderr)
        lines += table_lines(effects)
    click.echo("\n".join(lines))
    if docs is not None:
        write_page(lines, docs / "linking-tuning.md")


if __name__ == "__main__":
    main()
