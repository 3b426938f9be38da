"""The trace, or of its packets only those of the requests that a search finds: what a request of the page names."""

from functools import lru_cache

from flask import request

from collector.queries import SearchHits, TraceSearch, TraceView

SEARCHES_KEPT, NARROWED_KEPT = 32, 4
"""The results of so many searches, and the packets of so many."""
LONGEST_SEARCH = 500


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

    def _narrow(self, query: str) -> TraceView:
        return self._trace.only(self.hits(query).requests)
