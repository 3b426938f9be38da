"""From captures to a trace: decode, match, clocks, exchanges, spans, findings, each a pure stage over tables.

Live capture and offline replay both end here. The trace is written as a whole or not at all.

Connections are independent, so all stages except clocks, links and findings run by partition, on all cores or on
several machines. First every partition is matched (`match_stage`), which yields the evidence for the clocks; then hops
are aligned and requests rebuilt (`rebuild_stage`). Tables are written as partitions are completed, in their order, so
every run produces the same trace, wherever it runs (`places`). Exchanges are merged by time while they are written;
many are linked section by section (`link_stage`).

Memory: a few partitions, the evidence for clocks (`clocks.evidence`), and 20 to 40 bytes for each exchange (findings);
what else they look up is mapped from files (`collector.execution.long_columns`).
"""

from collector.analysis.options import AnalysisOptions
from collector.analysis.pipeline import analyse
from collector.decode.host_capture import HostSource

__all__ = ["AnalysisOptions", "HostSource", "analyse"]
