"""Serves files with the selection's packets or requests, which are created on request and removed once sent."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from flask import Flask, Response, abort, request, send_file

from collector.queries import Selection, TraceView, write_csv, write_merged, write_parquet, write_pcapng, write_requests
from viewer.narrowing import Narrowing

JSON, BYTES = "application/json", "application/octet-stream"
REQUEST_KINDS = {"otlp": "application/jsonl", "jaeger": JSON, "har": JSON, "perfetto": BYTES, "mermaid": "text/plain"}
"""Formats of requests, and their media types."""
WRITERS: dict[str, tuple[Callable[[TraceView, Selection, Path], object], str]] = {
    "csv": (write_csv, "text/csv"),
    "parquet": (write_parquet, "application/vnd.apache.parquet"),
    "pcapng": (write_pcapng, BYTES),
    "merged": (write_merged, BYTES),
    **{form: (partial(write_requests, form=form), kind) for form, kind in REQUEST_KINDS.items()},
}
"""Format to what writes it, and its media type."""
LARGEST_NS = 1 << 52


def add_saving(server: Flask, trace: TraceView, narrowing: Narrowing) -> None:
    """Serve selections of one trace as files."""

    @server.get("/save/<form>")
    def save(form: str) -> Response:
        if form not in WRITERS:
            abort(404, f"packets are not saved as {form}")
        write, kind = WRITERS[form]
        selection = _selection(trace)
        with tempfile.TemporaryDirectory(prefix="twintap-save-") as folder:
            place = Path(folder) / "packets"
            write(narrowing.asked_trace(), selection, place)
            return send_file(place.open("rb"), mimetype=kind, as_attachment=True, download_name=f"packets.{form}")


def _selection(trace: TraceView) -> Selection:
    given = {name: request.args.get(name, "") for name in ("request", "from", "to")}
    if given["request"].isdecimal() and len(given["request"]) < 10:
        number = int(given["request"]) - 1
        if not trace.has_request(number):
            abort(404, "no such request")
        return Selection(number)
    times = [given[name] for name in ("from", "to")]
    if not all(text.removeprefix("-").isdecimal() and len(text) < 17 for text in times):
        abort(400, "say which packets: `request`, or `from` and `to` in ns")
    return Selection(None, *(int(text) for text in times))
