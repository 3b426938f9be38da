"""A cable that damages one packet in 12 of those that bring answers, and its twin, which loses as many."""

from benchmarks.real_systems import logs
from benchmarks.real_systems.judge import Verdict, within
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Fault, Truth


class _BadCable(Scenario):
    hosts = addresses(client="10.68.0.10", web="10.68.0.20")
    needs = (("ethtool", "ethtool"), ("nstat", "iproute2"))
    what: str
    """As `benchmarks.real_systems.bad_cable` has it."""

    def start(self, lab: Lab) -> None:
        lab.slow_link("client", "benchmarks.real_systems.bad_cable", self.what, "0.08")
        for host in self.hosts:  # a cable carries checksums, and a veth need not
            lab.tool(host, "ethtool", "-K", "eth0", "tx", "off")
        settings = {
            "address": lab.address("web"), "port": 8080, "log": str(lab.folder / "web.log"), "work_ms": (5.0, 20.0),
            "calls": [],
        }  # fmt: skip
        lab.start_service("web", settings)

    def traffic(self, lab: Lab) -> Truth:
        server = f"{lab.address('web')}:8080"
        said = lab.python("client", "http_client", f"http://{server}", "240", "--at-once", "4", "--keep")
        calls = logs.client_calls(said, server)
        took = {call.target: call.server_ns for call in logs.service_calls(lab.folder / "web.log", server, {})}
        for call in calls:
            call.server_ns = took[call.target]
        errors = lab.tool("client", "nstat", "-asz", "TcpInCsumErrors").split("TcpInCsumErrors")[1].split()[0]
        more = {"damaged": int(errors), "served_ns": sum(call.server_ns or 0 for call in calls)}
        kind = "damaged_packets" if self.what == "flip" else "packet_loss"
        fault = Fault(f"{kind} at the client", (kind,), ("client", "web"))
        return Truth(calls=calls, names={server: r"web:8080"}, lost=None, fault=fault, more=more)

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        true = round(truth.more["damaged"])
        counted = sum(row["count"] for row in said.findings if row["kind"] == "damaged_packets")
        work_ns, served_ns = said.table("spans")["work_ns"].sum(), truth.more["served_ns"]
        return [
            Verdict("damaged packets (nstat)", str(true), str(counted), counted == true),
            Verdict(
                "time in the service, all requests",
                f"{served_ns / 1e6:.1f} ms",
                f"{work_ns / 1e6:.1f} ms",
                within(work_ns, (served_ns, served_ns)),
            ),
        ]


@scenario
class DamagingCable(_BadCable):
    """240 requests; a bit of every twelfth answer is flipped on the way."""

    name = "damaging-cable"
    words = "a Python service; the client's cable damages 8 % of the answers"
    what = "flip"


@scenario
class LossyCable(_BadCable):
    """The same; they are lost instead."""

    name = "lossy-cable"
    words = "the same; the cable loses them instead"
    what = "lose"
