"""One host tries 400 ports of another; and, beside it, one port of a service that is down, asked again and again."""

from benchmarks.real_systems.judge import Verdict
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Fault, Truth

TRY = """
import socket, sys
for port in eval(sys.argv[2]):
    try:
        socket.create_connection((sys.argv[1], port), timeout=1).close()
    except OSError:
        pass
"""
LONGEST_LINES, LINE = 3, 100


class _Tries(Scenario):
    hosts = addresses(client="10.68.0.10", web="10.68.0.20")
    ports: str
    """A Python expression."""

    def traffic(self, lab: Lab) -> Truth:
        lab.run("client", "python3", "-c", TRY, lab.address("web"), self.ports)
        return Truth(only=("packets", "words", "products", "first finding", "findings"), fault=self.fault)

    fault: Fault | None = None


@scenario
class PortScan(_Tries):
    """400 ports, one after the other; nobody listens at any."""

    name = "port-scan"
    words = "one host tries 400 ports of another"
    ports = "range(2000, 2400)"

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        found = [(row["kind"], row["count"], row["host"]) for row in said.findings]
        texts = [row["text"] for row in said.findings]
        lines = max((-(-len(text) // LINE) for text in texts), default=0)
        return [
            Verdict("findings", "port_scan of client, 400", str(found), found == [("port_scan", 400, "client")]),
            Verdict("lines of its text", f"at most {LONGEST_LINES}", str(lines), 0 < lines <= LONGEST_LINES),
        ]


@scenario
class PortDown(_Tries):
    """The same number of attempts at one port."""

    name = "port-down"
    words = "the same, but 400 times the same port"
    ports = "[8080] * 400"
    fault = Fault("connection_refused by web", ("connection_refused",), ("web", "client"))
