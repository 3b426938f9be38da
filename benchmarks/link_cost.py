"""What a MB costs on a virtual cable, by the burst of its shaper: `python -m benchmarks.link_cost`.

Brings the hosts of `paper-2016` up with each `burst_bytes` and sends 1 MB over a new connection, again and again, from
client to storage. The processor time is that of both processes (getrusage), kernel included: what a cable
does is done in the context of who sends or of who reads.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from storage_cluster import topology
from storage_cluster.hosts import cluster

COUNT = 200
BURSTS_BYTES = (16_384, 32_768, 65_536, 131_072)
ENDS = """
import json, os, resource, socket, sys, time
role, address, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
body, room = os.urandom(1_000_000), bytearray(1 << 18)
listening = socket.create_server((address, 7000)) if role == "receive" else None
print("ready", flush=True)
for number in range(count + 1):
    if number == 1:
        before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    connection = listening.accept()[0] if listening else socket.create_connection((address, 7000))
    if listening:
        left = len(body)
        while left:
            left -= connection.recv_into(room)
        connection.sendall(b"x")
    else:
        connection.sendall(body)
        connection.recv(1)
    connection.close()
after, elapsed_s = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - begin
used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
print(json.dumps([1e3 * used_s / count, 1e3 * elapsed_s / count]))
"""


def main() -> None:
    """Measure and print."""
    print(f"{'burst_bytes':>11} {'sender':>8} {'receiver':>8} {'elapsed':>8}   ms for each MB")
    for burst_bytes in BURSTS_BYTES:
        with tempfile.TemporaryDirectory(prefix="twintap-link-") as folder:
            sender, receiver, elapsed = _measure(Path(folder), burst_bytes)
        print(f"{burst_bytes:>11,} {sender:8.2f} {receiver:8.2f} {elapsed:8.2f}", flush=True)


def _measure(folder: Path, burst_bytes: int) -> tuple[float, float, float]:
    text = topology.find("paper-2016").read_text("utf-8")
    text = re.sub(r"^burst_bytes = \w+", f"burst_bytes = {burst_bytes}", text, flags=re.MULTILINE)
    file = folder / "link.toml"
    file.write_text(text, "utf-8")
    state_dir = folder / "cluster"
    cluster.up(state_dir, file, quiet=True)
    try:
        running = cluster.status(state_dir)
        address = running.host("storage").addresses[0]
        receiving = _end(running, "storage", "receive", address)
        sending = _end(running, "client", "send", address)
        sent, received = (json.loads(each.communicate()[0]) for each in (sending, receiving))
    finally:
        cluster.down(state_dir)
    return sent[0], received[0], sent[1]


def _end(running: cluster.ClusterStatus, host: str, role: str, address: str) -> "subprocess.Popen[str]":
    argv = [*running.host(host).enter, sys.executable, "-c", ENDS, role, address, str(COUNT)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


if __name__ == "__main__":
    main()
