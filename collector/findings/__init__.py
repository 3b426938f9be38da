"""Findings: what is wrong or remarkable in a trace, each with its evidence, its cost and a remedy.

There is one finding for each kind and place, not one for each packet: it counts the cases and names the worst one
(connection, span, time). `cost_ns` is the request time that somebody waited. Findings are ordered by severity, then by
cost.

1. `symptoms` counts what is wrong on connections, a partition at a time, and merges the counts.
2. `diagnosis` runs the families; each judges symptoms and requests, and words its findings.
3. `captures` doubts findings that holes in a capture may explain; `causes` determines which follow from which.

`kinds` registers all kinds of findings, `thresholds` all limits. The trace itself defines what is usual: its other
hosts, other network paths, and other times. Fixed thresholds only suppress what is too small to matter. Limits: causes
are named as far as packets show them (docs/diagnosis.md).
"""
