"""A syslog for one host: `log_socket.py PORT FILE` appends what Swift logs, a line for each message."""

import socket
import sys


def main(port: str, file: str) -> None:
    """Until killed."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listening.bind(("127.0.0.1", int(port)))
    with open(file, "ab", buffering=0) as log:
        while True:
            log.write(listening.recv(65_536).rstrip(b"\0\n") + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
