"""Whose requests the requests of a trace are: clients', background work, or of neither as far as is known."""

from enum import IntEnum

import numpy as np
import polars as pl
from numpy.typing import NDArray

from collector.queries.row_parts import parts_of
from collector.services.client_requests import RHYTHM_COLUMNS, has_own_rhythm, times_served
from collector.trace.request_times import BEGIN


class Origin(IntEnum):
    """Of a request with all its calls, as `collector.services.client_requests` has it."""

    CLIENT = 0
    BACKGROUND = 1
    UNLINKED = 2  # something asked it on behalf of a request, and of which is not known


def request_origins(requests: pl.DataFrame, spans: pl.DataFrame) -> NDArray[np.uint8]:
    """The origin of each request, by number.

    Arguments: `requests` from `collector.queries.request_table`; `spans`, as `SpanTrees.frame`, whose times are read
    only if some requests are neither clients' nor daemons'.
    """
    is_client, is_daemon = requests["outermost"].to_numpy(), requests["background"].to_numpy()
    origins = np.full(len(requests), Origin.UNLINKED, np.uint8)
    origins[is_daemon] = Origin.BACKGROUND
    origins[is_client] = Origin.CLIENT
    others = origins == Origin.UNLINKED
    if others.any():
        origins[_with_own_rhythm(others, spans)] = Origin.BACKGROUND
    return origins


def _with_own_rhythm(chosen: NDArray[np.bool_], spans: pl.DataFrame) -> NDArray[np.int32]:
    """Those of the chosen requests that are of a kind with a rhythm of its own, by number."""
    rows = spans.select("request", "client_host", *RHYTHM_COLUMNS)
    mine = (part.filter(pl.Series(chosen[part["request"].to_numpy()])) for part in parts_of(rows))
    calls = pl.concat([part.unique("request", keep="first", maintain_order=True) for part in mine])
    calls = calls.unique("request", keep="first", maintain_order=True)
    hosts = calls["client_host"].drop_nulls().unique().implode()
    served = (times_served(part.filter(pl.col("server_host").is_in(hosts))) for part in parts_of(rows))
    calls = calls.select("request", "client_host", "service", begin=BEGIN.expr())
    numbers: NDArray[np.int32] = calls.filter(has_own_rhythm(calls, pl.concat(served)))["request"].to_numpy()
    return numbers
