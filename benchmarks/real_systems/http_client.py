"""An HTTP client that logs each request itself: `python -m benchmarks.real_systems.http_client URL COUNT …`.

Prints a line of JSON for each request: number `n`, target, local port, when it began to write and had read all
(ns since the epoch), how long it took to open the connection if it did, status (0 if there was no answer).
"""

import argparse
import http.client
import json
import os
import random
import sys
import time
from typing import Any, NoReturn
from urllib.parse import urlsplit


def main() -> None:
    """So many processes, each with a connection of its own, take every so-many-th request."""
    options = _options()
    workers = [os.fork() or _work(options, worker) for worker in range(options.at_once)]
    for worker in workers:
        os.waitpid(worker, 0)


def _work(options: argparse.Namespace, worker: int) -> NoReturn:
    """Processes, since threads of one interpreter would wait for each other, and their logs hold that."""
    url = urlsplit(options.url)
    connection, connect_ns = None, None
    for number in range(options.first + worker, options.first + options.count, options.at_once):
        if connection is None:
            connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=options.timeout)
            connect_ns = _connect(connection)
            time.sleep(options.idle)
        line = _ask(connection, url.path + options.target.format(n=number), number, options)
        os.write(1, (json.dumps(line | {"connect_ns": connect_ns}) + "\n").encode())  # in one piece
        connect_ns = None
        if not options.keep or line["status"] == 0:
            connection.close()
            connection = None
        time.sleep(options.pause)
    os._exit(0)


def _connect(connection: http.client.HTTPConnection) -> int:
    began = time.time_ns()
    connection.connect()
    return time.time_ns() - began


def _ask(
    connection: http.client.HTTPConnection, target: str, number: int, options: argparse.Namespace
) -> dict[str, Any]:
    port = connection.sock.getsockname()[1]
    headers = {"User-Agent": options.agent, "X-Judge": str(number)}
    if options.blocks:
        block = random.Random(number).randrange(options.blocks)
        headers["Range"] = f"bytes={block * options.block_bytes}-{(block + 1) * options.block_bytes - 1}"
    body = b"b" * options.body if options.body else None
    began, status = time.time_ns(), 0
    try:
        connection.request("POST" if body else "GET", target, body, headers)
        answer = connection.getresponse()
        answer.read()
        status = answer.status
    except (OSError, http.client.HTTPException) as error:
        print(f"request {number}: {error}", file=sys.stderr)
    return {
        "n": number,
        "target": target,
        "port": port,
        "began_ns": began,
        "ended_ns": time.time_ns(),
        "status": status,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("count", type=int)
    parser.add_argument("--target", default="/item?n={n}", help="n is the request's number")
    parser.add_argument("--first", type=int, default=0, help="number of the first request")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="use a connection again")
    parser.add_argument("--idle", type=float, default=0.0, help="seconds between a connection's handshake and its use")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between a worker's requests")
    parser.add_argument("--body", type=int, default=0, help="bytes to POST; 0 for GET")
    parser.add_argument("--blocks", type=int, default=0, help="ask for one of so many blocks of the target, by chance")
    parser.add_argument("--block-bytes", type=int, default=16_384, help="of what length")
    parser.add_argument("--agent", default="judge/1", help="User-Agent")
    parser.add_argument("--timeout", type=float, default=60.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
