"""Which requests have packets is asked of the viewer; whatever answers there, the load page goes on."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from werkzeug.serving import make_server

from collector.queries import open_trace
from storage_cluster.bench.distributed.packets import Traced, ask_viewer
from testkit.synthetic_trace import Recipe, write_synthetic_trace
from tests.helpers.tiny_store import Seen, response, serving
from viewer.access import Access
from viewer.app import create_app


@contextmanager
def _viewer(folder: Path, token: str | None) -> Iterator[str]:
    app = create_app(open_trace(str(folder)), Access(token))
    server = make_server("127.0.0.1", 0, app.server, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join()


def test_a_viewer_says_which_ids_its_trace_has(tmp_path: Path) -> None:
    folder = tmp_path / "traced"
    write_synthetic_trace(folder, Recipe())
    view = open_trace(str(folder))
    known = next(filter(None, (view.spans(number)[0].transaction_id for number in range(view.summary.roots_count))))
    with _viewer(folder, None) as url:
        assert asyncio.run(ask_viewer(url, [known, "none"])) == Traced("open", "traced", (known,))
    with _viewer(folder, "secret") as url:
        assert asyncio.run(ask_viewer(url, [known])) == Traced("token")


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>"), (200, b"[]"), (200, b'{"trace": "t"}'), (404, b""), (500, b"{}")]
)
def test_what_is_no_viewer_is_taken_for_none(status: int, body: bytes) -> None:
    async def ask() -> Traced:
        def behave(seen: Seen) -> bytes:
            return response(status, body)

        async with serving(behave) as store:
            return await ask_viewer(f"http://127.0.0.1:{store.port}", ["a"])

    assert asyncio.run(ask()) == Traced("none")
    assert asyncio.run(ask_viewer("http://127.0.0.1:1", ["a"])) == Traced("none")
    assert asyncio.run(ask_viewer("no address", ["a"])) == Traced("none")
