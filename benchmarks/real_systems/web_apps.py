"""Small programs for Debian's own Python: an application with events, both ends of a WebSocket, a listener.

python3 web_apps.py app ADDRESS PORT LOG        /events, /slow, /pieces
python3 web_apps.py socket ADDRESS PORT LOG [COUNT]  sends so many messages (PUSHED), echoes what it gets
python3 web_apps.py talk URL SENT [COUNT]       reads what is pushed, says something SENT times, prints what came
python3 web_apps.py listen ADDRESS LOG          LISTEN on PostgreSQL; a line for each notification, until it ends
"""

import asyncio
import json
import select
import sys
import time
from typing import Any

EVENTS, EVENT_S = 12, 0.15
SLOW_S = 0.4
PIECES, PIECE_S = 12, 0.08
PUSHED, PUSH_S = 12, 0.12


def note(log: str, **what: object) -> None:
    """A line of a log."""
    with open(log, "a", encoding="utf-8") as file:
        file.write(json.dumps({"at_ns": time.time_ns(), **what}) + "\n")


def app(address: str, port: str, log: str) -> None:
    """Events without end, a slow answer, and an answer in pieces."""
    from aiohttp import web  # noqa: PLC0415 - Debian's; only some of these programs need it

    async def events(request: Any) -> Any:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        for number in range(EVENTS):
            await asyncio.sleep(EVENT_S)
            await answer.write(f"data: {number}\n\n".encode())
            note(log, kind="event")
        return answer

    async def slow(request: Any) -> Any:
        began = time.time_ns()
        await asyncio.sleep(SLOW_S)
        note(log, kind="request", target=request.path_qs, began_ns=began, took_ns=time.time_ns() - began)
        return web.Response(text="done\n")

    async def pieces(request: Any) -> Any:
        began = time.time_ns()
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(PIECES):
            await asyncio.sleep(PIECE_S)
            await answer.write(b"x" * 500)
        await answer.write_eof()
        note(log, kind="request", target=request.path_qs, began_ns=began, took_ns=time.time_ns() - began)
        return answer

    made = web.Application()
    made.add_routes([web.get("/events", events), web.get("/slow", slow), web.get("/pieces", pieces)])
    web.run_app(made, host=address, port=int(port))


def socket(address: str, port: str, log: str, count: str = str(PUSHED)) -> None:
    """A WebSocket server."""
    import websockets  # noqa: PLC0415

    async def push(connection: Any) -> None:
        for number in range(int(count)):
            await asyncio.sleep(PUSH_S)
            await connection.send(f"news {number}")
            note(log, kind="pushed")

    async def serve(connection: Any, *_: object) -> None:
        pushing = asyncio.create_task(push(connection))
        async for text in connection:
            note(log, kind="heard")
            await connection.send(f"you said {text}")
            note(log, kind="pushed")
        await pushing

    async def run() -> None:
        async with websockets.serve(serve, address, int(port)):
            await asyncio.Future()

    asyncio.run(run())


def talk(url: str, sent: str, count: str = str(PUSHED)) -> None:
    """A WebSocket client."""
    import websockets  # noqa: PLC0415

    async def say(connection: Any) -> None:
        for number in range(int(sent)):
            await asyncio.sleep(0.31)
            await connection.send(f"hello {number}")

    async def run() -> None:
        async with websockets.connect(url) as connection:
            saying = asyncio.create_task(say(connection))
            for _ in range(int(count) + int(sent)):
                await connection.recv()
            await saying
            await asyncio.sleep(0.3)

    asyncio.run(run())


def listen(address: str, log: str) -> None:
    """A listener of PostgreSQL."""
    import psycopg2  # noqa: PLC0415

    connection = psycopg2.connect(host=address, user="postgres", dbname="postgres", sslmode="disable")
    connection.autocommit = True
    connection.cursor().execute("LISTEN jobs")
    note(log, kind="ready")
    while True:
        select.select([connection], [], [])
        connection.poll()
        for _ in connection.notifies:
            note(log, kind="notified")
        connection.notifies.clear()


if __name__ == "__main__":
    {"app": app, "socket": socket, "talk": talk, "listen": listen}[sys.argv[1]](*sys.argv[2:])
