"""Routes for the timeline's data: windows, the overview, requests and problems. Numbers in, bytes or JSON out; no path
of a URL reaches the file system."""

import re
from typing import TypedDict

from flask import Flask, Response, abort, jsonify, request
from msgspec import to_builtins

from collector.queries import Annotations, Hop, TraceView, Usage
from collector.queries.why import explain
from tracer.errors import InputError, ResourceError
from viewer import windows
from viewer.annotations import add_annotation_routes
from viewer.binary import encode
from viewer.details import request_details
from viewer.narrowing import Narrowing
from viewer.pages.address import request_link
from viewer.serialise import element_trees
from viewer.why import no_comparison, why_details
from viewer.wording import Fact, both_facts, hop_facts, hop_title, packet_facts

WIDEST_NS = 1 << 52
LARGEST_ID = (1 << 63) - 1
LONGEST_ROWS = 100_000
MOST_TRANSACTIONS = 100


class Section(TypedDict):
    """Some facts under a title."""

    title: str
    facts: list[Fact]


def add_routes(server: Flask, trace: TraceView, narrowing: Narrowing) -> None:
    """Serve the timeline's data of one trace."""

    @server.errorhandler(InputError)
    def report_replacement(error: InputError) -> Response:  # a live trace was replaced while this one is viewed
        return Response(str(error), status=409, mimetype="text/plain")

    @server.errorhandler(ResourceError)
    def report_store(error: ResourceError) -> Response:  # the store of a trace that is far away does not answer
        return Response(str(error), status=503, mimetype="text/plain")

    _add_reads(server, trace)

    @server.get("/api/window")
    def window() -> Response:
        from_ns, to_ns = _stretch()
        return _bytes(windows.window_message(narrowing.asked_trace(), from_ns, to_ns, _rows(trace), _raw()))

    usage, annotations = Usage(trace), Annotations(trace)

    @server.get("/api/usage")
    def strips() -> Response:
        from_ns, to_ns = _stretch()
        return _bytes(windows.usage_message(usage, from_ns, to_ns))

    @server.get("/api/overview")
    def overview() -> Response:
        return _bytes(windows.overview_message(trace))

    @server.get("/api/slowness")
    def slowness() -> Response:  # of a trace that is far away it would read all of a table before anybody asked for it
        if trace.reads is not None or not trace.summary.roots_count:
            return jsonify(None)
        found = trace.load.slowness
        return jsonify(bin=found.bin_ns, ratio=found.ratio.round(2).tolist())

    _add_bands(server, trace)
    add_annotation_routes(server, annotations)

    @server.get("/api/requests/<int:number>/arrows")
    def request_arrows(number: int) -> Response:
        if not trace.has_request(number):
            abort(404, "no such request")
        return _bytes(windows.request_message(trace, number, _raw()))

    @server.get("/api/requests/<int:number>/details")
    def details(number: int) -> Response:
        if not trace.has_request(number):
            abort(404, "no such request")
        said = annotations.of_request(number)
        return jsonify(element_trees(request_details(trace.request(number), trace.spans(number), said)))

    @server.get("/api/requests/<int:number>/why")
    def why(number: int) -> Response:
        if not trace.has_request(number):
            abort(404, "no such request")
        try:
            found = explain(trace, number)
        except InputError as error:
            return jsonify(parts=element_trees(no_comparison(error.what)), beside=None)
        beside = None if found.typical is None else found.typical - 1
        return jsonify(parts=element_trees(why_details(found)), beside=beside)

    _add_hops(server, trace)
    _add_links(server, trace)

    @server.get("/api/<path:rest>")
    def nothing(rest: str) -> Response:  # otherwise Dash would answer with its page
        abort(404, f"nothing is served as {rest}")


def _add_bands(server: Flask, trace: TraceView) -> None:
    """Serve how slow the requests were that hosts served, and how many at once; and whose requests they are. Of a trace
    that is far away it would read all of a table before anybody asked for it."""
    has_bands = trace.reads is None and trace.summary.roots_count > 0

    @server.get("/api/bands")
    def bands() -> Response:
        from_ns, to_ns = _stretch()
        if not has_bands:
            abort(404, "this trace has no bands")
        rows = _numbers("lanes", len(trace.lanes))
        if not rows:
            abort(400, "`lanes` must be given")
        return _bytes(windows.bands_message(trace.load.by_server, rows, from_ns, to_ns))

    @server.get("/api/bands/at")
    def band_figures() -> Response:  # what a band stands for at the pointer, exactly
        from_ns, to_ns = _stretch()
        if not has_bands:
            abort(404, "this trace has no bands")
        lanes = [lane for row in _numbers("lanes", len(trace.lanes)) for lane in row]
        return jsonify(to_builtins(trace.load.by_server.within(lanes, from_ns, to_ns)))

    @server.get("/api/origins")
    def origins() -> Response:  # of each request whether a client's, or background work
        if trace.reads is not None:
            abort(404, "of a trace that is far away all requests would be read")
        return _bytes(encode({"mode": "origins", "from": 0, "to": trace.duration_ns}, {"origin": trace.load.origins}))


def _add_hops(server: Flask, trace: TraceView) -> None:
    """Serve single hops, those next to them, and those in trouble."""

    @server.get("/api/hops/<int:number>")
    def hop(number: int) -> Response:
        found = trace.hop(number)
        if found is None:
            abort(404, "no such hop")
        return jsonify(title=hop_title(found), request=found.request, sections=_sections(found))

    @server.get("/api/hops/<int:number>/<any(next, previous):which>")
    def beside(number: int, which: str) -> Response:  # of the same connection
        if trace.hop(number) is None:
            abort(404, "no such hop")
        other = trace.packet_beside(number, backwards=which == "previous")
        found = None if other is None else trace.hop(other)
        if found is None:
            return jsonify(None)
        at_ns = found.received_ns if found.sent_ns is None else found.sent_ns
        return jsonify(hop=found.number, request=found.request, at_ns=at_ns)

    @server.get("/api/problems/<any(next, previous):which>")
    def problem(which: str) -> Response:
        found = trace.next_problem(_time("at"), backwards=which == "previous")
        if found is None:
            return jsonify(None)
        return jsonify(to_builtins(found) | {"rank": trace.problem_rank(found), "count": trace.problems_count})

    @server.get("/api/connections/<int:number>/trouble")
    def trouble(number: int) -> Response:
        if number > LARGEST_ID:
            abort(404, "no such connection")
        found = trace.first_trouble(number)
        return jsonify(None if found is None else to_builtins(found))


def _add_reads(server: Flask, trace: TraceView) -> None:
    """Show what was read of a trace that is no directory, with each answer."""
    if trace.reads is None:
        return

    @server.after_request
    def add_reads(response: Response) -> Response:
        assert trace.reads is not None
        response.headers["X-Twintap-Read"] = f"read {trace.reads.words}"
        return response

    @server.get("/api/reads")
    def reads() -> Response:
        assert trace.reads is not None
        return jsonify(to_builtins(trace.reads) | {"stored_bytes": trace.stored.stored_bytes()})


def _add_links(server: Flask, trace: TraceView) -> None:
    """Ways into the timeline from other pages and tools."""

    @server.get("/transaction/<transaction_id>")
    def transaction(transaction_id: str) -> Response:  # what logs and `tracer bench` know a request by
        number = trace.request_of(transaction_id)
        if number is None:
            abort(404, "no request of this trace has that transaction id")
        return Response(status=303, headers={"Location": request_link(number)})

    @server.get("/api/transactions")
    def transactions() -> Response:  # which of the requests that a load page lists have packets in this trace
        ids = request.args.getlist("id")
        if len(ids) > MOST_TRANSACTIONS:
            abort(400, f"at most {MOST_TRANSACTIONS} ids")
        known = [text for text, number in zip(ids, trace.load.numbers_of(ids), strict=True) if number is not None]
        return jsonify(trace=trace.url.rstrip("/").rpartition("/")[2], known=known)

    @server.get("/connection/<int:number>")
    def connection(number: int) -> Response:  # from pages that have no timeline of their own
        found = trace.first_trouble(number) if number <= LARGEST_ID else None
        if found is None:
            abort(404, "no packet of such a connection was lost, sent again or not paired")
        margin = max(found.to_ns - found.from_ns, 1_000_000)
        address = f"/#from={found.from_ns - margin}&to={found.to_ns + margin}&hop={found.hop}"
        return Response(status=303, headers={"Location": address})


def _raw() -> bool:
    return request.args.get("clocks") == "raw"


def _rows(trace: TraceView) -> list[list[int]]:
    """Rows of ends from the query string: `0.4-9,2` are two; no end may be there twice."""
    return _numbers("rows", len(trace.ends)) if trace.counted_by_end else []


def _numbers(name: str, most: int) -> list[list[int]]:
    """Rows of numbers below `most` from the query string."""
    text = request.args.get(name, "")
    if not text:
        return []
    if len(text) > LONGEST_ROWS or not re.fullmatch(r"[0-9]{1,6}(-[0-9]{1,6})?([.,][0-9]{1,6}(-[0-9]{1,6})?)*", text):
        abort(400, f"`{name}` must be numbers, as 0.4-9,2")
    rows = [[number for part in row.split(".") for number in _range(part, most)] for row in text.split(",")]
    numbers = [number for row in rows for number in row]
    if len(set(numbers)) != len(numbers):
        abort(400, f"`{name}` names a number twice")
    return rows


def _range(text: str, most: int) -> range:
    first, _, last = text.partition("-")
    return range(int(first), min(int(last or first) + 1, most))


def _stretch() -> tuple[int, int]:
    """`from` and `to` from the query string."""
    from_ns, to_ns = _time("from"), _time("to")
    if to_ns <= from_ns:
        abort(400, "`to` must be after `from`")
    return from_ns, to_ns


def _time(name: str) -> int:
    """A whole number of ns from the query string."""
    text = request.args.get(name, "")
    if not text.removeprefix("-").isdecimal() or len(text) > 17 or abs(int(text)) > WIDEST_NS:
        abort(400, f"`{name}` must be a whole number of ns, at most 2^52")
    return int(text)


def _bytes(message: bytes) -> Response:
    return Response(message, mimetype="application/octet-stream")


def _sections(hop: Hop) -> list[Section]:
    sent, received = hop.sent_packet, hop.received_packet
    sections: list[Section] = [{"title": "", "facts": hop_facts(hop)}]
    if sent is not None and received is not None:
        sections.append({"title": "Packet, as sent → as received", "facts": both_facts(sent, received)})
    elif sent is not None:
        sections.append({"title": "Packet at the sender", "facts": packet_facts(sent)})
    elif received is not None:
        sections.append({"title": "Packet at the receiver", "facts": packet_facts(received)})
    return sections
