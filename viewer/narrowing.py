"""The trace, or of its packets only those of the requests that a search finds: what a request of the page names."""

from functools import lru_cache

from flask import request

from collector.queries import SearchHits, TraceSearch, TraceView

SEARCHES_KEPT, NARROWED_KEPT = 32, 4
"""The results of so many searches, and the packets of so many."""
LONGEST_SEARCH = 500
MOST_ALONE = 10_000_000
"""At most so many packets are shown without the others: 40 bytes of memory each, and 0.1 s for a view of them."""


class Narrowing:
    """One trace and its searches. Safe to use from several threads."""

    def __init__(self, trace: TraceView, search: TraceSearch) -> None:
        self._trace = trace
        self.hits = lru_cache(SEARCHES_KEPT)(search.hits)
        self._only = lru_cache(NARROWED_KEPT)(self._narrow)

    def asked_hits(self) -> SearchHits:
        """The results of the search `q` of the current request."""
        return self.hits(request.args.get("q", "")[:LONGEST_SEARCH])

    def asked_trace(self) -> TraceView:
        """The trace of the current request: narrowed to what its search `only` finds, if it has one; nothing, if that
        makes no sense."""
        query = request.args.get("only", "")[:LONGEST_SEARCH]
        return self._only(query) if query else self._trace

    def problem(self, hits: SearchHits) -> str:
        """Why the packets of the requests that were found cannot be shown alone; "" if they can."""
        count = self._trace.packets_count(hits.requests)
        return f"they have {count:,} packets; at most {MOST_ALONE:,} are shown alone" if count > MOST_ALONE else ""

    def _narrow(self, query: str) -> TraceView:
        hits = self.hits(query)
        return self._trace.only(hits.requests[:0] if self.problem(hits) else hits.requests)
