"""Whose requests the requests of a trace are: clients', background work, or of neither as far as is known."""

from enum import IntEnum

import numpy as np
import polars as pl
from numpy.typing import NDArray

from collector.services.client_requests import RHYTHM_COLUMNS, in_background, of_clients


class Origin(IntEnum):
    """Of a request with all its calls, as `collector.services.client_requests` has it."""

    CLIENT = 0
    BACKGROUND = 1
    UNLINKED = 2  # something asked it on behalf of a request, and of which is not known


def request_origins(spans: pl.DataFrame) -> NDArray[np.uint8]:
    """The origin of each request, by number. Arguments: `spans`, as `SpanTrees.frame`."""
    rows = spans.select("request", "client_host", "background", *RHYTHM_COLUMNS, exchange_id="span_id")
    roots = rows.unique("request", keep="first", maintain_order=True)
    origins = np.full(len(roots), Origin.UNLINKED, np.uint8)
    origins[in_background(roots, rows)["request"].to_numpy()] = Origin.BACKGROUND
    origins[of_clients(roots, rows)["request"].to_numpy()] = Origin.CLIENT
    return origins
