"""The system of `tls`, with curl's key log: what is asked inside TLS 1.2 and 1.3 is read, so requests have names.

Truth: as of `tls`, and what curl asked.
"""

from pathlib import Path

from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.scenario import addresses, scenario
from benchmarks.real_systems.systems.tls import PORTS, Tls
from benchmarks.real_systems.truth import Truth

KEY_LOG = "keys.log"


@scenario
class TlsKeys(Tls):
    """By each version 10 curls, each 4 requests on one connection, whose secrets curl logs."""

    name = "tls-keys"
    words = "nginx with TLS 1.2 and 1.3 before a Python service; curl, whose key log opens what is captured"
    hosts = addresses(client="10.68.0.10", web="10.68.0.20", app="10.68.0.30")
    by = ("tcpdump",)

    def traffic(self, lab: Lab) -> Truth:
        truth = super().traffic(lab)
        for call in truth.calls:
            if call.parent == "":
                call.target = f"/item?{call.id}"
                call.name = f"GET {call.target}"
        for port in PORTS.values():  # its answers say so, on both ports
            truth.names[f"{lab.address('web')}:{port}"] = rf"nginx web:{port}"
        return truth

    def client(self, lab: Lab) -> tuple[str, ...]:
        return ("env", f"SSLKEYLOGFILE={lab.folder / KEY_LOG}", "curl")

    def captures(self, folder: Path, by: str) -> list[str]:
        return ["--keys", str(folder / "lab" / KEY_LOG), *super().captures(folder, by)]
