"""Findings: what is wrong or remarkable in a trace, each with its evidence, its cost and a remedy.

There is one finding for each kind and place, not one for each packet: it counts the cases and names the worst one
(connection, span, time). `cost_ns` is the request time that somebody waited. Findings are ordered by severity, then by
cost. The symptoms on connections have been counted before, partition by partition (`collector.findings.symptoms`). Here
each family judges its symptoms and words its findings, and `causes` determines which findings follow from which.

The trace itself defines what is usual: its other hosts, other network paths, and other times. Fixed thresholds only
suppress what is too small to matter. Limits: causes are named as far as packets show them (docs/diagnosis.md).
"""

from collector.findings.diagnosis import build_findings, find
from collector.findings.ports import CONNECTION_COLUMNS
from collector.findings.requests import EXCHANGE_COLUMNS, SPAN_COLUMNS

__all__ = ["CONNECTION_COLUMNS", "EXCHANGE_COLUMNS", "SPAN_COLUMNS", "build_findings", "find"]
