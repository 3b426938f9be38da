"""Whatever a test here finds is checked for its length."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest

from collector.findings import diagnosis
from collector.findings.finding import MOST_LINES, Finding, SeverityThresholds


@pytest.fixture(autouse=True)
def of_three_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A finding takes three lines of a wide terminal at most, with its remedy."""
    whole, seen = diagnosis.as_table, list[Finding]()

    def checked_table(found: Iterable[Finding], severity: SeverityThresholds) -> pa.Table:
        seen.extend(every := list(found))
        return whole(every, severity)

    monkeypatch.setattr(diagnosis, "as_table", checked_table)
    yield
    assert [finding for finding in seen if finding.lines_count > MOST_LINES] == []
