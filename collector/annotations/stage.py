"""The stage of an analysis that reads logs and other tracers' spans, and joins them to requests.

It is imported where there are some: most analyses have none, and would wait for it.
"""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from collector.annotations import joining
from collector.annotations.log_options import LogOptions
from collector.annotations.logs.reading import read_logs
from collector.annotations.records import Record
from collector.annotations.spans.joining import COLUMNS as COLUMNS_OF_SPANS
from collector.annotations.spans.joining import join_inner_spans, join_sided_spans
from collector.annotations.spans.reading import read_spans
from collector.annotations.table import Join, annotations_table, with_numbers
from collector.trace.model import CounterInfo, HostInfo

__all__ = ["join_to_requests", "read_records", "with_numbers"]


def read_records(
    logs: LogOptions, spans: Sequence[str], hosts: Sequence[HostInfo]
) -> tuple[tuple[Record, ...], tuple[CounterInfo, ...]]:
    """Lines of logs and spans of captured hosts, and counters of what could not be read.

    Raises: `InputError` for files that cannot be read or are of no captured host.
    """
    lines, unread = read_logs(logs, hosts)
    of_spans, unread_spans = read_spans(spans, hosts)
    return (*lines, *of_spans), (*unread, *unread_spans)


def join_to_requests(
    records: Sequence[Record], clocks: pa.Table, batches: Callable[[str, Sequence[str]], Iterator[pa.Table]]
) -> pa.Table:
    """The table `annotations` of `records`, with the requests that they are about.

    Arguments: `clocks`, the table; `batches`, which reads columns of another table of the trace, a part at a time.
    """
    joins: dict[int, Join] = join_sided_spans(records, clocks, batches("exchanges", COLUMNS_OF_SPANS))
    others = [place for place, record in enumerate(records) if place not in joins and joining.is_of_server(record)]
    found = joining.join_records(
        [records[place] for place in others],
        clocks,
        batches("exchanges", joining.EXCHANGE_COLUMNS),
        batches("connections", joining.CONNECTION_COLUMNS),
        joining.parents_of(batches("spans", joining.PARENT_COLUMNS)),
    )
    joins |= {others[place]: join for place, join in found.items()}
    return annotations_table(records, clocks, joins | join_inner_spans(records, joins))
