"""What the index keeps of all requests is what is made of their exchanges."""

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from collector.queries.request_table import request_classes, request_table
from collector.queries.slowness import slowness
from collector.queries.stored_requests import SLOWNESS_BINS
from collector.queries.timeline.shelf import Shelf
from collector.queries.trace_index import TraceIndex, build
from collector.trace.reading import Trace
from testkit.synthetic_trace import Recipe, write_synthetic_trace


def as_texts(table: pl.DataFrame) -> pl.DataFrame:
    """With texts in place of categories, and columns in the order of their names."""
    return table.select(sorted(table.columns)).with_columns(pl.col(pl.Categorical).cast(pl.String))


@pytest.mark.parametrize("uploads", [0, 40])
@pytest.mark.parametrize("in_files", [False, True])
def test_it_is_what_the_exchanges_make(tmp_path: Path, uploads: int, in_files: bool) -> None:
    write_synthetic_trace(tmp_path / "trace", Recipe(uploads_count=uploads, daemons_every=3))
    trace, folder = Trace(str(tmp_path / "trace")), tmp_path / "index" if in_files else None
    if folder is not None:
        folder.mkdir()
    shelf = Shelf(folder)
    build(shelf, trace, trace.info(), lambda share: None)
    index = TraceIndex.read(Shelf(folder) if folder else shelf)
    expected = request_table(index.trees.frame)
    assert len(expected) >= uploads
    assert_frame_equal(as_texts(index.requests.table), as_texts(expected))
    assert index.requests.classes == request_classes(expected)
    duration_ns = max(1, index.facts.end_ns - index.facts.start_ns)
    assert index.requests.slowness.bin_ns == slowness(expected, duration_ns, SLOWNESS_BINS).bin_ns
    assert index.requests.slowness.ratio.tolist() == slowness(expected, duration_ns, SLOWNESS_BINS).ratio.tolist()
