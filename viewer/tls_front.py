"""TLS before the page's server, which speaks HTTP alone: connections are taken here, and their bytes handed on.

The server behind listens at a socket in a folder of this user, so nobody else reaches it. Its limits hold as without
TLS; a handshake has `HANDSHAKE_SECONDS`.
"""

import asyncio
import shutil
import socket
import ssl
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HANDSHAKE_SECONDS = 10.0
PIECE_BYTES = 1 << 16


@contextmanager
def tls_front(listener: socket.socket, context: ssl.SSLContext) -> Iterator[socket.socket]:
    """While the context lasts, connections to `listener` are taken by TLS; yields where the server behind listens."""
    folder = Path(tempfile.mkdtemp(prefix="twintap-"))
    behind = socket.socket(socket.AF_UNIX)
    loop, ended = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=_run, args=(loop, _serve(listener, context, folder / "page", ended)), name="tls")
    thread.daemon = True
    try:
        behind.bind(str(folder / "page"))
        behind.listen()
        thread.start()
        yield behind
    finally:
        if thread.ident is not None:
            loop.call_soon_threadsafe(ended.set)
            thread.join()
        behind.close()
        shutil.rmtree(folder, ignore_errors=True)


def _run(loop: asyncio.AbstractEventLoop, serving: Coroutine[Any, Any, None]) -> None:
    """Run it to its end, which ends the connections that are still open."""
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(serving)


async def _serve(listener: socket.socket, context: ssl.SSLContext, place: Path, ended: asyncio.Event) -> None:
    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_writer = None
        try:
            inner_reader, inner_writer = await asyncio.open_unix_connection(str(place))
            await asyncio.gather(_hand_on(reader, inner_writer), _hand_on(inner_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass  # the server behind is gone, or this one ends
        finally:
            for each in (writer, inner_writer):
                if each is not None:
                    each.transport.abort()

    server = await asyncio.start_server(take, sock=listener, ssl=context, ssl_handshake_timeout=HANDSHAKE_SECONDS)
    await ended.wait()
    server.close()


async def _hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Bytes of one direction, until it ends; then the other side is closed."""
    with suppress(OSError):
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
        writer.close()
        await writer.wait_closed()
