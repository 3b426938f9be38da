"""memcached, asked by a client with its own log.

Truth: the client's own times. What memcached itself counted (`stats`) agrees with it, or the run is not judged.
"""

from benchmarks.real_systems.cache_driver import CacheByDriver
from benchmarks.real_systems.lab import Lab, LabError
from benchmarks.real_systems.scenario import scenario
from benchmarks.real_systems.truth import Truth

PORT = 11_211
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as one:
    one.sendall(b"stats\\r\\n")
    said = b""
    while not said.endswith(b"END\\r\\n"):
        said += one.recv(65536)
print(said.decode())
"""


@scenario
class Memcached(CacheByDriver):
    """Small and large values, several keys, `noreply`, errors, meta commands."""

    name = "memcached"
    words = "memcached; a client's own times of 293 commands: 21 at once, `noreply`, meta commands, errors"
    kind = "memcached"
    port = PORT
    needs = (("memcached", "memcached"),)

    def start(self, lab: Lab) -> None:
        address = lab.address("cache")
        lab.start("cache", "memcached", "-u", "root", "-l", f"{address},127.0.0.1", "-p", str(PORT), port=PORT)

    def traffic(self, lab: Lab) -> Truth:
        truth = super().traffic(lab)
        said = lab.run("cache", "python3", "-c", ASK, "127.0.0.1", str(PORT)).splitlines()
        counts = {line.split()[1]: line.split()[2] for line in said if line.startswith("STAT")}
        asked = sum(int(count) for name, count in truth.more.items() if name.startswith(("named get", "named mg")))
        if int(counts["cmd_get"]) < asked:
            raise LabError(f"memcached counted {counts['cmd_get']} reads of {asked}")
        return truth
