"""Routes for uploaded captures. Pieces arrive one by one, so nothing large is ever in memory. A problem is reported as
a sentence in the response. A page of another site cannot send the header that these routes require."""

from collections.abc import Callable

from flask import Flask, Response, abort, jsonify, request
from msgspec import to_builtins

from viewer.uploads import PIECE_BYTES, Uploads

HEADER = "X-Twintap-Upload"


def add_uploads(server: Flask, uploads_of: Callable[[], Uploads]) -> None:
    """Serve uploads; they are the viewer's, whatever trace it shows."""

    @server.before_request
    def same_site() -> None:
        if request.path.startswith("/uploads") and request.headers.get(HEADER) != "1":
            abort(403, "uploads come from the viewer's own page")

    @server.post("/uploads")
    def begin() -> Response:
        return jsonify(to_builtins(uploads_of().begin(request.args.get("name", ""))))

    @server.put("/uploads/<int:number>")
    def piece(number: int) -> Response:
        offset, length = request.args.get("offset", ""), request.content_length
        if not offset.isdecimal() or len(offset) > 15 or length is None or length > PIECE_BYTES:
            abort(400, f"a piece has an `offset` and at most {PIECE_BYTES} bytes")
        return jsonify(to_builtins(uploads_of().add(number, int(offset), request.stream, length)))

    @server.post("/uploads/<int:number>/end")
    def end(number: int) -> Response:
        return jsonify(to_builtins(uploads_of().end(number)))

    @server.delete("/uploads/<int:number>")
    def drop(number: int) -> Response:
        uploads_of().drop(number)
        return jsonify({})

    @server.post("/uploads/trace")
    def make() -> Response:
        given = request.get_json(silent=True)
        if not isinstance(given, dict) or not all(key.isdecimal() and isinstance(given[key], str) for key in given):
            abort(400, "say whose capture each file is")
        return jsonify(to_builtins(uploads_of().make({int(key): host for key, host in given.items()})))

    @server.get("/uploads/trace")
    def making() -> Response:
        return jsonify(to_builtins(uploads_of().making()))
