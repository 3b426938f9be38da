"""The measurement of what each tuned number of link inference changes, without the linking itself."""

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks.linking import sensitivity
from benchmarks.linking.sensitivity import (
    COLUMNS,
    NONE,
    Case,
    Effect,
    Linked,
    Number,
    record_cases,
    score,
    score_by_system,
    table_lines,
    write_cases,
    write_page,
)
from benchmarks.linking.systems import SYSTEMS
from benchmarks.linking.truth import ROOT, Truth

SYSTEM = "names in targets, few requests"
EXAMPLE = sensitivity.ROOT_FOLDER / "collector/core/links/examples/link_columns.rs"


@pytest.fixture(name="case")
def recorded_case() -> Case:
    exchanges, parent_of = SYSTEMS[SYSTEM].run()
    ids = exchanges["exchange_id"].to_pylist()
    parents = [parent_of.get(number, ROOT) for number in ids]
    truth = Truth(pl.DataFrame({"exchange_id": ids, "line": ids}), pl.DataFrame({"line": ids, "parent": parents}))
    (case,) = record_cases(exchanges, truth, SYSTEM)
    return case


def true_links(case: Case) -> Linked:
    place = {line: number for number, line in enumerate(case.line.tolist())}
    parent = np.array([place.get(line, NONE) for line in case.true_line.tolist()], np.int64)
    return Linked(parent, np.where(parent == NONE, 0.0, 1.0))


def test_true_links_score_all_and_wrong_ones_less(case: Case) -> None:
    linked = true_links(case)
    assert case.line.tolist() == list(range(1, len(case.line) + 1))
    right = score([case], linked)
    assert (right.right_share, right.calibration_error) == (1, 0)
    assert right.calls_count == int((case.true_line != ROOT).sum()) > 0
    parent = linked.parent.copy()
    child = int(np.flatnonzero(parent != NONE)[0])
    parent[child] = NONE
    less = score([case], Linked(parent, linked.confidence))
    assert less.right_share == pytest.approx(1 - 1 / right.calls_count)
    parent[child] = len(parent) - 1
    assert score([case], Linked(parent, linked.confidence)).calibration_error > 0


def test_systems_are_scored_one_by_one(case: Case) -> None:
    linked = true_links(case)
    none = Linked(np.full(len(linked.parent), NONE), linked.confidence)
    both = Linked(*(np.concatenate([getattr(linked, name), getattr(none, name)]) for name in ("parent", "confidence")))
    assert [each.right_share for _, each in score_by_system([case, case], both)] == [1, 0]


def test_cases_are_written_in_the_order_in_which_the_core_s_example_reads_them(case: Case, tmp_path: Path) -> None:
    fields = re.findall(r"(\w+): &columns\[(\d+)\]", EXAMPLE.read_text())
    assert [name for name, _ in sorted(fields, key=lambda field: int(field[1]))] == list(COLUMNS)
    assert set(COLUMNS) | {"words"} == set(case.columns)
    write_cases([case, case], tmp_path / "cases")
    count = len(case.line)
    data = (tmp_path / "cases").read_bytes()
    assert len(data) == 2 * (8 + 8 * count * len(COLUMNS) + 4 * case.columns["words"].size)
    assert np.frombuffer(data[: 8 * (1 + count)], "<i8").tolist() == [count, *case.columns["client_host"].tolist()]


def test_whole_numbers_stay_whole_and_differ() -> None:
    assert [Number("calls", 2, is_whole=True).times(factor) for factor in (0.75, 1.25)] == [1, 3]
    assert Number("share", 0.2, is_whole=False).times(0.75) == pytest.approx(0.15)


def test_of_a_share_near_one_the_rest_is_scaled() -> None:
    assert Number("max_confidence", 0.96, is_whole=False).times(0.5) == pytest.approx(0.98)
    assert Number("first_percent", 90, is_whole=True).times(1.25) == 87
    assert Number("gain_nats", 0.96, is_whole=False).times(0.5) == pytest.approx(0.48)


def test_the_table_has_a_row_for_each_number(tmp_path: Path) -> None:
    effects = [Effect(0.75, 3, -0.01, 0.002), Effect(1.25, 0, 0.0, 0.0)]
    *_, row = table_lines([(Number("share", 0.2, is_whole=False), effects)])
    assert row == "| `share` | 0.2 | -1.00%, +0.0020 | – |  |  |"
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- sensitivity -->\nold\n<!-- /sensitivity -->\nafter\n")
    write_page([row], page)
    assert page.read_text() == f"before\n<!-- sensitivity -->\n\n{row}\n\n<!-- /sensitivity -->\nafter\n"
