"""Distinguishes calls of one method by what they ask for, where that is one of few things: steps of a request's work.

A page makes a SELECT of an item, then one of its reviews; a gateway asks `/item`, then `/stock` of the same service. As
one kind of call, each request makes two of it, and links in order give the second call of one request to the next one.
As two kinds, each is made once, at its own time.

1. A path is a target without its query; of a statement of SQL its shape before the first parameter.
2. A path is common if `LEAST_CALLS` exchanges of its service and method have it.
3. If the common paths of a service and method are `MOST_PATHS` or fewer, and `LEAST_SHARE` of its exchanges have one,
   each is a kind of its own, and what is left is another. Names of objects, of which there are many, are none.

Limits: a service that is asked for one of few objects at random (a map's ten tiles) has such paths, too. Then a kind is
made by a share of the requests only, and in simulations 1 % of the calls lose their link.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

LEAST_CALLS = 20
"""As many as links are learned from (`min_calls_per_kind` of the core's tuning.rs)."""
MOST_PATHS = 16
"""Chosen: a service has so many operations; a store of objects has more names."""
LEAST_SHARE = 0.9
"""Chosen: what is rare may be names beside a few that many ask for."""
GROUP = ("service", "method")


def with_operations(exchanges: pl.DataFrame, paths: NDArray[np.uint64]) -> pl.DataFrame:
    """`exchanges` whose `method` distinguishes the common paths, too.

    Arguments: at least `service` and `method`, enums; of each exchange a number for its path, 0 if unknown.
    """
    if not paths.any():
        return exchanges
    known = exchanges.select(pl.col(GROUP).to_physical(), path=pl.Series(paths))
    common = _common_paths(known).with_columns(operation=pl.int_range(pl.len()).cast(pl.String))
    if common.is_empty():
        return exchanges
    operation = known.join(common, on=[*GROUP, "path"], how="left", maintain_order="left")["operation"]
    named = pl.concat_str(pl.col("method").cast(pl.String), operation.fill_null(""), separator=" ")
    text = exchanges.select(named)["method"]
    return exchanges.with_columns(method=text.cast(pl.Enum(text.drop_nulls().unique().sort())))


def _common_paths(known: pl.DataFrame) -> pl.DataFrame:
    """`service, method, path` of the paths that are kinds of their own."""
    counts = known.filter(pl.col("path") != 0).drop_nulls().group_by(*GROUP, "path").len()
    is_common = pl.col("len") >= LEAST_CALLS
    shown = counts.filter(
        (pl.col("len").filter(is_common).sum() >= LEAST_SHARE * pl.col("len").sum()).over(GROUP),
        is_common.sum().over(GROUP).is_between(2, MOST_PATHS),
    )
    return shown.filter(is_common).select(*GROUP, "path").sort(*GROUP, "path")
