"""Routes for search and lists of packets: one hit, or one page of rows, for each request."""

from dataclasses import asdict
from functools import lru_cache

from flask import Flask, Response, abort, jsonify, request

from collector.queries import Arrows, SearchHits, TraceSearch, TraceView
from viewer.binary import encode_arrows

LARGEST_PAGE = 500
SEARCHES_KEPT = 32


def add_search_routes(server: Flask, trace: TraceView) -> None:
    """Serve searches and pages of packets of one trace."""

    searching = TraceSearch(trace)

    @lru_cache(SEARCHES_KEPT)
    def hits_of(query: str) -> SearchHits:
        return searching.hits(query)

    @server.get("/api/search")
    def search() -> Response:
        hits = hits_of(request.args.get("q", "")[:500])
        if hits.problem or not hits.count:
            return jsonify(count=0, at=0, hit=None, problem=hits.problem)
        at = _number("at", 0) % hits.count
        return jsonify(count=hits.count, at=at, hit=asdict(searching.hit(hits, at)), problem="")

    @server.get("/api/packets")
    def packets() -> Response:  # those whose time is in [from, to)
        from_ns, to_ns = _number("from"), _number("to")
        count = trace.count(from_ns, max(from_ns, to_ns))
        return _arrows(trace.packets_between(from_ns, to_ns, *_page(count)), count)

    @server.get("/api/requests/<int:number>/packets")
    def request_packets(number: int) -> Response:
        if not trace.has_request(number):
            abort(404, "no such request")
        count = trace.request(number).hops_count
        return _arrows(trace.request_packets(number, *_page(count)), count)


def _page(count: int) -> tuple[int, int]:
    """First row and number of rows of the requested page, within `count`."""
    first = min(max(0, _number("first", 0)), count)
    return first, min(max(0, _number("rows", LARGEST_PAGE)), LARGEST_PAGE, count - first)


def _number(name: str, otherwise: int | None = None) -> int:
    text = request.args.get(name, "" if otherwise is None else str(otherwise))
    if not text.removeprefix("-").isdecimal() or len(text) > 17:
        abort(400, f"`{name}` must be a whole number")
    return int(text)


def _arrows(arrows: Arrows, count: int) -> Response:
    return Response(encode_arrows(arrows, 0, 0, count), mimetype="application/octet-stream")
