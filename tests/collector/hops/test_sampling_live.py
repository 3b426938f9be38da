"""Two real agents, of which one keeps fewer connections while they run: each packet of a connection that it keeps, none
of the others, and nothing is called lost. Skips, aloud, without the right to make namespaces."""

import subprocess
import sys
from pathlib import Path

import pytest

from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.trace.reading import Trace
from testkit.live_hosts import pair
from tests.helpers.system_tools import or_skip
from tracer import _capture

pytestmark = pytest.mark.live
CONNECTIONS_COUNT = 24
DEPTH = 1
SERVER = """
import socket, sys, threading
def answer(taken):
    while taken.recv(100):
        taken.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
listener = socket.create_server((sys.argv[1], 8080))
print("ready", flush=True)
while True:
    threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
"""
CLIENT = """
import socket, sys
opened = [socket.create_connection((sys.argv[1], 8080)) for _ in range(int(sys.argv[2]))]
print(*(each.getsockname()[1] for each in opened), flush=True)
for line in sys.stdin:
    for each in opened:
        each.sendall(b"GET /o HTTP/1.1\\r\\nHost: b\\r\\n\\r\\n")
        each.recv(100)
    print("asked", flush=True)
"""
AGENT = """
import sys
from pathlib import Path
from tracer.agent import CaptureOptions, start_capture
folder = Path(sys.argv[1])
folder.mkdir()
capture = start_capture(CaptureOptions((sys.argv[2],), sys.argv[3], cpu_percent=5), folder, 1, (), (0, None))
print("ready", flush=True)
for line in sys.stdin:
    capture.keep(*eval(line))
    capture.wait(300_000_000)  # until its thread has seen it
    print("kept", flush=True)
capture.stop()
while not capture.wait(1_000_000_000):
    pass
print("left out", capture.counts()[6])
"""


class Process:
    """A command in a namespace that answers each line with a line."""

    def __init__(self, *argv: str) -> None:
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first = self.read()

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def ask(self, line: str) -> str:
        """The answer to a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.read()

    def end(self) -> str:
        """What it says when its input ends."""
        return self.process.communicate(timeout=60)[0]


def test_an_agent_leaves_out_whole_connections_and_nothing_is_called_lost(tmp_path: Path) -> None:
    with or_skip(), pair() as hosts:
        with hosts.b.running(sys.executable, "-c", SERVER, hosts.b.address, ready="ready"):
            python = (sys.executable, "-c")
            agents = [
                Process(*host.enter, *python, AGENT, str(tmp_path / host.name), host.interface, host.name)
                for host in (hosts.a, hosts.b)
            ]
            client = Process(*hosts.a.enter, *python, CLIENT, hosts.b.address, str(CONNECTIONS_COUNT))
            ports = list(map(int, client.first.split()))
            client.ask("whole")
            agents[1].ask(f"({DEPTH}, 0)")
            client.ask("sampled")
            said = [agent.end() for agent in agents]
            client.end()
        depths = _capture.sampling_depths([(hosts.a.address, port, hosts.b.address, 8080) for port in ports])
    left_out = sum(depth < DEPTH for depth in depths)
    assert 0 < left_out < CONNECTIONS_COUNT
    counts = [int(each.split()[-1]) for each in said]
    assert counts[0] == 0
    assert counts[1] >= 2 * left_out, "a request and an answer of each"
    analyse(host_sources([str(tmp_path / "a"), str(tmp_path / "b")]), str(tmp_path / "trace"))
    trace = Trace(str(tmp_path / "trace"))
    states = trace.read("hops", ["state"])["state"].to_pylist()
    assert set(states) == {"matched", "outside_window"}
    assert states.count("outside_window") == counts[1]
    assert trace.read("findings").num_rows == 0, trace.read("findings", ["text"]).to_pylist()
    counters = {(each.host, each.name): each for each in trace.info().counters}
    assert counters["b", "connections_sampled"].count == counts[1]
    assert "all, 1/2 from " in counters["b", "connections_sampled"].remedy
    assert counters["b", "heads_shortened"].count >= 2 * (CONNECTIONS_COUNT - left_out)
    assert ("a", "connections_sampled") not in counters
