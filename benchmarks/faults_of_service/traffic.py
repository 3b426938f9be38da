"""Requests with numbers, from one host to the other, and a log of when each was sent: what must be in the trace.

python -m benchmarks.faults_of_service.traffic serve ADDRESS
python -m benchmarks.faults_of_service.traffic ask ADDRESS RATE LOG FIRST
"""

import socket
import socketserver
import sys
import time

PORT = 8080
BODY = b"x" * 500
LIFETIME = 53
"""Requests of one connection."""


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        waiting = b""
        while more := self.request.recv(65536):
            waiting += more
            while len(waiting) >= (end := waiting.find(b"\r\n\r\n") + 4 + len(BODY)) > 3 + len(BODY):
                waiting = waiting[end:]
                self.request.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def serve(address: str) -> None:
    """Answer until killed."""
    with _Server((address, PORT), _Handler) as server:
        print("ready", flush=True)
        server.serve_forever()


def ask(address: str, rate: float, log: str, first: int) -> None:
    """Send requests at that rate until killed; the log has of each its number, `first` and up, and when it was sent and
    answered."""
    number, connection, began = first, None, time.monotonic()
    with open(log, "w", buffering=1) as noted:
        print("ready", flush=True)
        while True:
            time.sleep(max(0.0, began + (number - first) / rate - time.monotonic()))
            if (number - first) % LIFETIME == 0:
                if connection is not None:
                    connection.close()
                connection = socket.create_connection((address, PORT))
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            assert connection is not None
            sent = time.time()
            head = f"PUT /v1/a/c/o{number} HTTP/1.1\r\nHost: s\r\nX-Trans-Id: {transaction_id(number)}\r\n"
            connection.sendall(f"{head}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
            connection.recv(65536)
            noted.write(f"{number} {sent:.6f} {time.time():.6f}\n")
            number += 1


def transaction_id(number: int) -> str:
    """Of a request, as its head has it."""
    return f"tx{number:019d}-{number:010x}"


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        ask(sys.argv[2], float(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
