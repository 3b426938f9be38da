"""A client of Redis or memcached, by plain sockets: `python -m benchmarks.real_systems.cache_client KIND ADDRESS PORT`.

Prints a line for each command: its number, its name with the shape of its key, its port, when its first byte was
written and the last of its answer read, the first word of an error, and whether it is answered at all. Commands of a
batch are written at once.
"""

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

Command = tuple[str, bytes]
"""Name and shape, and its bytes."""


def main() -> None:
    """Send all batches, and print what became of each command."""
    kind, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    batches, read = (redis_batches(), read_redis) if kind == "redis" else (memcached_batches(), read_memcached)
    with socket.create_connection((address, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers, own = connection.makefile("rb"), connection.getsockname()[1]
        for number, (began_ns, name, word, ended_ns) in enumerate(exchanges(connection, answers, batches, read)):
            words = {"n": number, "port": own, "began_ns": began_ns, "ended_ns": ended_ns, "name": name, "error": word}
            print(json.dumps(words))


def exchanges(
    connection: socket.socket,
    answers: BinaryIO,
    batches: Iterator[list[Command]],
    read: Callable[[BinaryIO, bytes], str],
) -> Iterator[tuple[int, str, str, int | None]]:
    """When each command began, its name, its error, and when its answer had come; none if it is not answered."""
    for batch in batches:
        began_ns = time.time_ns()
        connection.sendall(b"".join(command for _, command in batch))
        for name, command in batch:
            is_bare = b"noreply" in command
            word = "" if is_bare else read(answers, command)
            yield began_ns, name, word, None if is_bare else time.time_ns()
        time.sleep(0.002)


def resp(*words: object) -> bytes:
    """A command of Redis."""
    each = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(each) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in each)


def redis_batches() -> Iterator[list[Command]]:
    """Small and large values, pipelines, transactions, errors, scripts."""
    yield [("HELLO", resp("HELLO", 3))]
    for number in range(40):
        yield [("SET user:*", resp("SET", f"user:{number}", b"v" * (1 + number * 97)))]
        yield [("GET user:*", resp("GET", f"user:{number}"))]
    for size in (200_000, 400_000):
        yield [("SET blob:*", resp("SET", f"blob:{size}", b"\r\n$5\r\n+OK\r\n" * (size // 12)))]
        yield [("GET blob:*", resp("GET", f"blob:{size}"))]
    for _ in range(5):
        yield [("INCR hits:*", resp("INCR", f"hits:{number}")) for number in range(100)]
    yield [
        ("MULTI", resp("MULTI")),
        *(("HSET cart:{*}", resp("HSET", f"cart:{{{number}}}", "item", "x" * 40)) for number in range(5)),
        ("EXEC", resp("EXEC")),
    ]
    yield [("LPUSH user:*", resp("LPUSH", "user:1", "x")), ("NOSUCHCOMMAND", resp("NOSUCHCOMMAND", "x"))]
    yield [("EVAL user:*", resp("EVAL", "return {1, {2, 'three'}, redis.call('GET', KEYS[1])}", 1, "user:3"))]
    yield [("EVALSHA", resp("EVALSHA", "0" * 40, 0)), ("MGET user:*", resp("MGET", *(f"user:{n}" for n in range(40))))]
    yield [("INFO", resp("INFO")), ("CONFIG GET", resp("CONFIG", "GET", "maxmemory*")), ("PING", b"PING\r\n")]


def read_redis(answers: BinaryIO, command: bytes = b"") -> str:
    """The word of the next answer if it is an error; empty if not."""
    line = answers.readline()
    kind, rest = line[:1], line[1:].strip()
    if kind == b"-":
        return rest.split(b" ")[0].decode()
    if kind in b"$=!" and int(rest) >= 0:
        answers.read(int(rest) + 2)
    elif kind in b"*~>%":
        for _ in range(int(rest) * (2 if kind == b"%" else 1)):
            read_redis(answers)
    return ""


def memcached_batches() -> Iterator[list[Command]]:
    """Small and large values, several keys, commands without answers, errors, and meta commands."""
    for number in range(40):
        size = 1 + number * 97
        yield [("set user:*", b"set user:%d 0 0 %d\r\n%s\r\n" % (number, size, b"v" * size))]
        yield [("get user:*", b"get user:%d\r\n" % number), ("gets user:*", b"gets user:%d user:1 none\r\n" % number)]
    value = b"END\r\nSTORED\r\n" * 20_000
    yield [("set blob", b"set blob 0 0 %d\r\n%s\r\n" % (len(value), value))]
    yield [("get blob", b"get blob\r\n")]
    for _ in range(5):
        yield [
            ("set quiet:*", b"set quiet:1 0 0 5 noreply\r\nhello\r\n"),
            *(("get quiet:*", b"get quiet:1\r\n") for _ in range(20)),
            ("delete quiet:*", b"delete quiet:1 noreply\r\n"),
        ]
    yield [("set hits", b"set hits 0 0 1\r\n5\r\n"), *(("incr hits", b"incr hits 3\r\n") for _ in range(50))]
    yield [
        ("incr user:*", b"incr user:1 1\r\n"),
        ("delete none", b"delete none\r\n"),
        ("touch blob", b"touch blob 60\r\n"),
    ]
    yield [("mg user:*", b"mg user:1 v t\r\n"), ("ms meta:*", b"ms meta:7 5\r\nhello\r\n"), ("md none", b"md none\r\n")]
    yield [("mg none", b"mg none v q\r\nmg user:2 v q\r\nmg user:3 v q\r\nmn\r\n"), ("version", b"version\r\n")]
    yield [("stats", b"stats\r\n"), ("get user:*", b"get user:1\r\n")]


def read_memcached(answers: BinaryIO, command: bytes) -> str:
    """Likewise. What a batch of quiet commands leaves to be answered ends with MN."""
    while True:
        words = answers.readline().split()
        length = {b"VALUE": 3, b"VA": 1}.get(words[0])
        if length is not None:
            answers.read(int(words[length]) + 2)
        goes_on = words[0] in (b"VALUE", b"STAT") or (b" q\r\n" in command and words[0] != b"MN")
        if not goes_on:
            return words[0].decode() if words[0].endswith(b"ERROR") else ""


if __name__ == "__main__":
    main()
