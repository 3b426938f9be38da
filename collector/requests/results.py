"""What the answers of requests mean, as their protocols define it: the columns `status_class` and `result`.

A protocol's module in the core states the class of an answer by its status and its result code, and the name of the
code (`tracer/core/protocols/src/results.rs`). Both are computed once for each combination that occurs.
"""

from enum import StrEnum

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector import _core
from collector.requests.protocols import NAMES
from collector.trace.arrow import bits, dictionary_array, indices, numbers

SAYS_NOTHING = -1
"""The result code of an answer that says nothing beside its status."""
LOWEST_CODE = -2
"""It must say more, and was not seen to."""
NO_NAME = -1


class StatusClass(StrEnum):
    """How a request ended, by its answer; in the core's words."""

    UNKNOWN = "unknown"
    OK = "ok"
    CLIENT_ERROR = "client_error"
    REFUSED = "refused"
    SERVER_ERROR = "server_error"


CLASSES = [str(each) for each in StatusClass]
FAILURES = (StatusClass.REFUSED, StatusClass.SERVER_ERROR)
"""The server did not serve the request, or refused it without fault of its own."""
ERRORS = (StatusClass.CLIENT_ERROR, *FAILURES)


def with_results(exchanges: pa.Table) -> pa.Table:
    """Exchanges with `status_class`, and `result`: the result code in the protocol's words, null if it has none.

    Cost: one pass over the exchanges.
    """
    protocol, names = indices(exchanges["protocol"])
    place = np.array([NAMES.index(name) for name in names] or [0], dtype=np.int32)[protocol]
    status = numbers(exchanges["status"]).astype(np.int32)
    code = numbers(exchanges["result_code"], SAYS_NOTHING).astype(np.int32)
    if not len(place):
        return exchanges
    group, first = _core.row_groups([place, status, code - LOWEST_CODE])
    meanings = [_core.answer_meaning(int(place[at]), int(status[at]), int(code[at])) for at in first]
    results = list(dict.fromkeys(name for _, name in meanings if name is not None))
    classes = np.array([CLASSES.index(each) for each, _ in meanings], dtype=np.int32)
    named = np.array([NO_NAME if name is None else results.index(name) for _, name in meanings], dtype=np.int32)
    columns = {
        "status_class": dictionary_array(classes[group], pa.array(CLASSES)),
        "result": _optional(named[group], results),
    }
    for name, column in columns.items():
        exchanges = exchanges.set_column(exchanges.schema.get_field_index(name), name, column)
    return exchanges


def answer_text(status: int | None, result: str | None) -> str:
    """What an answer says of its result: `503`, `200 UNAVAILABLE`, `23505 unique_violation`; "" if it says nothing."""
    return " ".join(filter(None, (str(status or ""), result)))


def has_class(exchanges: pa.Table, *classes: StatusClass) -> NDArray[np.bool_]:
    """Whether the answer of each exchange is of one of these classes."""
    place, names = indices(exchanges["status_class"])
    return np.array([*(name in classes for name in names), False])[place]


def is_error() -> pl.Expr:
    """Whether an answer reports an error, whoever is at fault; never null."""
    return pl.col("status_class").is_in([str(each) for each in ERRORS]).fill_null(value=False)


def _optional(places: NDArray[np.int32], names: list[str]) -> pa.DictionaryArray:
    """The name at each place; null at `NO_NAME`."""
    known = places != NO_NAME
    return dictionary_array(np.where(known, places, 0), pa.array(names, pa.string()), bits(known))
