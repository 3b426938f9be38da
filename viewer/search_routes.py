"""Routes for search and lists of packets: one hit, or one page of rows, for each request."""

from flask import Flask, Response, abort, jsonify, request
from msgspec import to_builtins

from collector.queries import Arrows, TraceSearch, TraceView
from viewer.binary import encode_arrows
from viewer.narrowing import Narrowing

LARGEST_PAGE = 500


def add_search_routes(server: Flask, trace: TraceView, searching: TraceSearch, narrowing: Narrowing) -> None:
    """Serve searches and pages of packets of one trace."""

    @server.get("/api/search")
    def search() -> Response:
        hits = narrowing.asked_hits()
        if hits.problem or not hits.count:
            return jsonify(count=0, requests=0, alone="", at=0, hit=None, problem=hits.problem)
        at = _number("at", 0) % hits.count
        found = to_builtins(searching.hit(hits, at))
        alone, count = narrowing.problem(hits), len(hits.requests)
        return jsonify(count=hits.count, requests=count, alone=alone, at=at, hit=found, problem="")

    @server.get("/api/search/words")
    def words() -> Response:
        found = searching.completions(request.args.get("q", ""))
        return jsonify([to_builtins(each) for each in found])

    @server.get("/api/packets")
    def packets() -> Response:  # those whose time is in [from, to)
        from_ns, to_ns = _number("from"), _number("to")
        asked = narrowing.asked_trace()
        count = asked.count(from_ns, max(from_ns, to_ns))
        return _arrows(trace, asked.packets_between(from_ns, to_ns, *_page(count)), count)

    @server.get("/api/around")
    def around() -> Response:  # where the packets next to an empty view are
        before, after = narrowing.asked_trace().packets_around(_number("from"), _number("to"))
        return jsonify(before=before, after=after)

    @server.get("/api/requests/<int:number>/packets")
    def request_packets(number: int) -> Response:
        if not trace.has_request(number):
            abort(404, "no such request")
        count = trace.request(number).hops_count
        return _arrows(trace, trace.request_packets(number, *_page(count)), count)


def _page(count: int) -> tuple[int, int]:
    """First row and number of rows of the requested page, within `count`."""
    first = min(max(0, _number("first", 0)), count)
    return first, min(max(0, _number("rows", LARGEST_PAGE)), LARGEST_PAGE, count - first)


def _number(name: str, otherwise: int | None = None) -> int:
    text = request.args.get(name, "" if otherwise is None else str(otherwise))
    if not text.removeprefix("-").isdecimal() or len(text) > 17:
        abort(400, f"`{name}` must be a whole number")
    return int(text)


def _arrows(trace: TraceView, arrows: Arrows, count: int) -> Response:
    message = encode_arrows(arrows, 0, 0, count, trace.peers_of_arrows(arrows))
    return Response(message, mimetype="application/octet-stream")
