"""Files that nginx sends: over a clean link, over one that loses packets, and over a narrow one.

Truth: curl's times and nginx's access log; what nft on the switch dropped.
"""

from typing import ClassVar

from benchmarks.real_systems import logs
from benchmarks.real_systems.lab import SWITCH, Lab, port_name
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.systems.python_services import CURL
from benchmarks.real_systems.truth import Fault, Truth
from benchmarks.real_systems.web_servers import NGINX_NEEDS, nginx_log, start_nginx

SERVER = """  sendfile off; output_buffers 2 64k;
  server {{ listen {address}:80; root {root}; location / {{ try_files /file =404; }} }}"""


@scenario
class Download(Scenario):
    """40 curls of a file of 500 kB, one after the other: more in one burst would be too much for tcpdump's buffer."""

    name = "download"
    words = "nginx, a file of 500 kB; curl"
    hosts = addresses(client="10.68.0.10", web="10.68.0.20")
    needs: ClassVar[tuple[tuple[str, str], ...]] = (NGINX_NEEDS, ("curl", "curl"), ("nft", "nftables"))
    count, size_bytes = 40, 500_000

    def start(self, lab: Lab) -> None:
        lab.file("root/file", "x" * self.size_bytes)
        start_nginx(lab, "web", SERVER.format(address=lab.address("web"), root=lab.folder / "root"))
        for host in ("client", "web"):  # single segments, as on a wire
            lab.cut_to_mss(host, "eth0")
            lab.cut_to_mss(SWITCH, port_name(host))
        self.inject(lab)

    def inject(self, lab: Lab) -> None:
        """What the link does."""

    def traffic(self, lab: Lab) -> Truth:
        server = f"{lab.address('web')}:80"
        said = lab.run("client", "sh", "-c", CURL.format(last=self.count - 1, server=server, pause=0.05))
        calls = logs.curl_calls(said, server)
        logs.with_server_times(calls, {line.target: line.took_ns for line in nginx_log(lab)}, 1_000_000)
        # nginx's clock stops when the kernel has the last byte, curl's when it has read it.
        truth = Truth(calls=calls, names={server: r"nginx|http|web:80"})
        truth.ledger = {"response_idle_ns+request_idle_ns+reader_wait_ns+queue_ns+work_ns": (0, 0)}
        self.refine(lab, truth)
        return truth

    def refine(self, lab: Lab, truth: Truth) -> None:
        """What is true of this one alone."""


@scenario
class LossyDownload(Download):
    """The switch drops one in 50 of the packets to the client."""

    name = "lossy-download"
    words = "the same; the switch drops 2 % of what goes to the client"

    def inject(self, lab: Lab) -> None:
        lab.drop(SWITCH, f"ip daddr {lab.address('client')} numgen random mod 50 == 0", "bridge", "forward")

    def refine(self, lab: Lab, truth: Truth) -> None:
        truth.lost = lab.dropped_count(SWITCH, "bridge")
        truth.fault = Fault(
            "packet_loss to the client", ("packet_loss", "tail_loss", "fast_retransmission", "retransmission_timeout"),
            ("client", "web"),
        )  # fmt: skip


@scenario
class NarrowDownload(Download):
    """A token bucket of 40 Mbit/s at the switch's port to the client."""

    name = "narrow-download"
    words = "the same; tbf at the switch lets 40 Mbit/s through to the client"
    needs = (*Download.needs, ("tc", "iproute2"))
    hosts = addresses(client="10.68.0.10", other="10.68.0.11", web="10.68.0.20")  # what `other` gets is to compare with
    count = 12

    def traffic(self, lab: Lab) -> Truth:
        truth = super().traffic(lab)
        server = f"{lab.address('web')}:80"
        more = logs.curl_calls(lab.run("other", "sh", "-c", CURL.format(last=19, server=server, pause=0.02)), server)
        for call in more:
            call.id, call.started_ns = f"other {call.id}", call.started_ns
        truth.calls = [*truth.calls, *more]
        # Of the same targets nginx's log has two lines each.
        for call in truth.calls:
            call.server_ns = None
        return truth

    def inject(self, lab: Lab) -> None:
        words = ("rate", "40mbit", "burst", "16kb", "limit", "4mb")
        lab.tool(SWITCH, "tc", "qdisc", "add", "dev", port_name("client"), "root", "tbf", *words)

    def refine(self, lab: Lab, truth: Truth) -> None:
        truth.fault = Fault("narrow_link to the client", ("narrow_link",), ("client", "web"))
