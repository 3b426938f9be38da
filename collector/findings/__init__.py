"""What is wrong or remarkable in a trace, each with its evidence, its cost and what to do.

One finding for each kind and place, not one for each packet: it counts the cases and points at the worst one
(connection, span, time). `cost_ns` is request time that somebody waited. Ordered by severity, then cost. What happened
on connections was counted before, a partition at a time (`collector.findings.symptoms`); here it is judged and put into
words, family by family, and `causes` tells which follow from which.

What is unusual is told by the trace itself: by other hosts, other links, other times of it. Fixed figures only keep
what is too small to matter from being said. Limits: causes are named as far as packets show them (docs/diagnosis.md).
"""

from collector.findings.diagnosis import find, told
from collector.findings.ports import CONNECTION_COLUMNS
from collector.findings.requests import EXCHANGE_COLUMNS, SPAN_COLUMNS

__all__ = ["CONNECTION_COLUMNS", "EXCHANGE_COLUMNS", "SPAN_COLUMNS", "find", "told"]
