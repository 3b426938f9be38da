"""What stands between agents and their collector: it sees which segments are acknowledged, and breaks connections.

    python -m benchmarks.faults_of_service.witness ADDRESS:PORT COLLECTOR:PORT LOG SEED SHARE

Each line of LOG is a segment that the collector has acknowledged, written before the agent can know. Of all requests
`SHARE` are cut off before the collector has all of them, and as many after it has answered and before the agent hears.
"""

import json
import random
import socket
import sys
import threading
import time
from dataclasses import dataclass

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Message:
    """An HTTP message as it came, its first line and its headers, names in lower case."""

    raw: bytes
    first_line: str
    headers: dict[str, str]
    body: bytes


class Reader:
    """Messages that come in on a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._waiting = connection, b""

    def message(self) -> Message | None:
        """The next one; None at the end, also within one."""
        while (head_len := self._waiting.find(b"\r\n\r\n") + 4) < 4:
            if not self._more():
                return None
        lines = self._waiting[:head_len].decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        whole_len = head_len + int(headers.get("content-length", 0))
        while len(self._waiting) < whole_len:
            if not self._more():
                return None
        raw, self._waiting = self._waiting[:whole_len], self._waiting[whole_len:]
        return Message(raw, lines[0], headers, raw[head_len:])

    def _more(self) -> bool:
        more = self._connection.recv(1 << 16)
        self._waiting += more
        return bool(more)


class Witness:
    """Passes requests on, and writes down what was acknowledged."""

    def __init__(self, collector: tuple[str, int], log: str, seed: str, share: float) -> None:
        self._collector, self._share = collector, share
        self._log = open(log, "a", buffering=1)  # noqa: SIM115, it lasts as long as the process
        self._random, self._lock = random.Random(seed), threading.Lock()

    def serve(self, connection: socket.socket) -> None:
        """One connection of an agent, to its end."""
        with connection:
            connection.settimeout(PATIENCE_S)
            try:
                with socket.create_connection(self._collector, PATIENCE_S) as onward:
                    self._pass_on(Reader(connection), connection, Reader(onward), onward)
            except OSError:
                return

    def _pass_on(self, agent: Reader, to_agent: socket.socket, collector: Reader, to_collector: socket.socket) -> None:
        while (request := agent.message()) is not None:
            fate = self._fate()
            if fate == "before":
                to_collector.sendall(request.raw[: len(request.raw) // 2])
                return
            to_collector.sendall(request.raw)
            answer = collector.message()
            if answer is None:
                return
            self._note(request, answer)
            if fate == "after":
                return
            to_agent.sendall(answer.raw)

    def _fate(self) -> str:
        with self._lock:
            return self._random.choices(("", "before", "after"), (1 - 2 * self._share, self._share, self._share))[0]

    def _note(self, request: Message, answer: Message) -> None:
        method, path, _ = request.first_line.split(" ")
        status = answer.first_line.split(" ")[1]
        if method != "PUT" or status not in ("200", "201") or json.loads(answer.body).get("acknowledged") is not True:
            return
        _, _, _, _, _, host, _, incarnation, _, number = path.split("/")
        name = f"{incarnation}/{host}-{incarnation}-{int(number):06d}.pcapng"
        seen = {"at": time.time(), "host": host, "name": name, "sha256": request.headers["x-content-sha256"]}
        with self._lock:
            self._log.write(json.dumps(seen) + "\n")


def main() -> None:
    """Serve until killed."""
    listen, collector, log, seed, share = sys.argv[1:]
    witness = Witness(_endpoint(collector), log, seed, float(share))
    with socket.create_server(_endpoint(listen), backlog=64) as door:
        print("ready", flush=True)
        while True:
            connection, _ = door.accept()
            threading.Thread(target=witness.serve, args=(connection,), daemon=True).start()


def _endpoint(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    return address, int(port)


if __name__ == "__main__":
    main()
