"""A client of ZooKeeper, by plain sockets: `python -m benchmarks.real_systems.zookeeper_client ADDRESS PORT`.

Prints the same lines as `cache_client`: operations one at a time and several at once, errors, pings, and a watch that
another of its connections sets off while an answer is due.
"""

import json
import socket
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

CREATE, DELETE, EXISTS, GET, SET, CHILDREN, PING, CLOSE = 1, 2, 3, 4, 5, 8, 11, -11
NAMES = {
    CREATE: "create", DELETE: "delete", EXISTS: "exists", GET: "getData", SET: "setData", CHILDREN: "getChildren",
    CLOSE: "closeSession",
}  # fmt: skip
ERRORS = {0: "", -101: "NONODE", -103: "BADVERSION", -110: "NODEEXISTS", -111: "NOTEMPTY"}
OPEN_TO_ALL = struct.pack("!ii", 1, 31) + struct.pack("!I", 5) + b"world" + struct.pack("!I", 6) + b"anyone"


def text(value: bytes) -> bytes:
    """Bytes with their length before them."""
    return struct.pack("!I", len(value)) + value


@dataclass(slots=True)
class Session:
    """A connection, and the lines of what was asked on it."""

    link: socket.socket
    lines: list[dict[str, int | str]] = field(default_factory=list)
    notices: int = 0
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def open(self) -> None:
        """Open a session."""
        began_ns = time.time_ns()
        self.link.sendall(text(struct.pack("!iqiq", 0, 0, 10_000, 0) + text(bytes(16)) + b"\0"))
        self._receive()
        self._note("connect", began_ns, "")

    def ask(self, *asked: tuple[int, bytes, bytes]) -> None:
        """Ask all at once. Arguments: operations, their paths, and what is behind them."""
        numbers = [next(self.numbers) for _ in asked]
        began_ns = time.time_ns()
        messages = zip(numbers, asked, strict=True)
        self.link.sendall(
            b"".join(text(struct.pack("!ii", number, kind) + path + body) for number, (kind, path, body) in messages)
        )
        for number, (kind, path, _) in zip(numbers, asked, strict=True):
            while (answer := self._receive())[:4] != struct.pack("!i", number):
                self.notices += answer[:4] == b"\xff\xff\xff\xff"
            name = " ".join(filter(None, (NAMES[kind], path[4:].decode())))
            self._note(name, began_ns, ERRORS[struct.unpack("!i", answer[12:16])[0]])
        time.sleep(0.002)

    def ping(self) -> None:
        """Keep the session open."""
        self.link.sendall(text(struct.pack("!ii", -2, PING)))

    def _note(self, name: str, began_ns: int, error: str) -> None:
        port = self.link.getsockname()[1]
        self.lines.append(
            {"port": port, "began_ns": began_ns, "ended_ns": time.time_ns(), "name": name, "error": error}
        )

    def _receive(self) -> bytes:
        (size,) = struct.unpack("!I", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = self.link.recv(size - len(found))
            if not piece:
                raise ConnectionError("the server closed the connection")
            found += piece
        return found


def main() -> None:
    """Ask on two connections, and print what became of each request."""
    address = (sys.argv[1], int(sys.argv[2]))
    with socket.create_connection(address) as one, socket.create_connection(address) as other:
        for link in (one, other):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        main_session, writer = Session(one), Session(other)
        main_session.open(), writer.open()
        _ask_all(main_session, writer)
        if main_session.notices < 20:
            raise SystemExit(f"only {main_session.notices} notices of watches came")
        lines = main_session.lines + writer.lines
    for number, line in enumerate(lines):
        print(json.dumps({"n": number, **line}))


def _ask_all(session: Session, writer: Session) -> None:
    def create(path: bytes) -> tuple[int, bytes, bytes]:
        return CREATE, text(path), text(b"data") + OPEN_TO_ALL + struct.pack("!i", 0)

    app, config, missing = (text(path) for path in (b"/app", b"/app/config", b"/app/missing"))
    session.ask(create(b"/app")), session.ask(create(b"/app/config")), session.ask(create(b"/app"))
    for number in range(40):
        session.ask((GET, config, b"\1"))  # with a watch
        writer.ask((SET, config, text(b"x" * (number * 5)) + struct.pack("!i", -1)))
        session.ping()
        session.ask((EXISTS, missing, b"\0"))
        session.ask(*[(GET, config, b"\0")] * 10, (CHILDREN, app, b"\0"))
    session.ask((SET, config, text(b"x") + struct.pack("!i", 1)))
    session.ask((DELETE, app, struct.pack("!i", -1)))
    for each in (session, writer):
        each.ask((CLOSE, b"", b""))


if __name__ == "__main__":
    main()
