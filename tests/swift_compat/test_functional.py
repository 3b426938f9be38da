"""The counts of Swift's own functional tests: how they are made, kept and shown."""

import json
from pathlib import Path

import pytest

from benchmarks.swift import functional
from benchmarks.swift.functional import Row

SWIFT = {"a": "pass", "b": "pass", "c": "skip", "d": "fail"}
OURS = {"a": "pass", "b": "error", "c": "pass"}


def test_what_swift_skips_does_not_count() -> None:
    assert functional.row("m", SWIFT, OURS) == Row("m", skipped_count=1, run_count=3, swift_count=2, ours_count=1)


def test_the_last_outcome_of_a_test_is_its_outcome() -> None:
    lines = [json.dumps({"test": "a", "outcome": outcome, "why": ""}) for outcome in ("pass", "error")]
    assert functional.outcomes_in(lines) == {"a": "error"}


def test_counts_are_kept_in_order_and_summed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functional, "FILE", tmp_path / "counts.csv")
    functional.save([Row("n", 1, 5, 4, 3), Row("m", 0, 3, 2, 1)])
    assert functional.load() == [Row("m", 0, 3, 2, 1), Row("n", 1, 5, 4, 3)]
    *_, sums, missing = functional.table(functional.load())
    assert sums == "| all | 1 | 8 | 6 | 4 |"
    assert missing.endswith("test_staticweb, test_tempurl, test_domain_remap.")


def test_every_test_that_swift_runs_passes_here() -> None:
    rows = functional.load()
    assert {row.module for row in rows} == set(functional.MODULES)
    assert [row for row in rows if row.run_count != row.ours_count] == []
