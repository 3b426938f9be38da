"""nginx before two upstreams over a pool of kept connections: as it should be, one of them slow, one of them gone.

Truth: the client's log, nginx's access log ($request_time, and each try's upstream and time, ms), the services' (ns).
Which of nginx's requests a service was asked for is in a header that nginx hands on and the product does not know; what
the services are asked looks the same each time (`proxy_pass` names a path of its own).
"""

import os
import signal
from collections.abc import Sequence
from typing import ClassVar

from benchmarks.real_systems import logs
from benchmarks.real_systems.lab import SWITCH, Lab
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Call, Fault, Truth
from benchmarks.real_systems.verdict import Verdict, in_ms, within
from benchmarks.real_systems.web_servers import NGINX_NEEDS, NginxLine, empty_logs, nginx_log, proxy_config, start_nginx

PORT = 8000
APPS = ("app1", "app2")
FIXED_PATH = "/work"


@scenario
class NginxPool(Scenario):
    """300 requests of 4 clients."""

    name = "nginx-pool"
    words = "nginx, 8 kept connections to two Python services; all calls look alike"
    hosts = addresses(client="10.68.0.10", web="10.68.0.20", app1="10.68.0.31", app2="10.68.0.32")
    needs: ClassVar[tuple[tuple[str, str], ...]] = (NGINX_NEEDS,)
    count, at_once, before = 300, 4, 20
    nginx_more = f"rewrite ^ {FIXED_PATH} break;"

    def work_ms(self, host: str) -> tuple[float, float]:
        """Of a service's own work, the least and the most."""
        return (5.0, 20.0)

    def start(self, lab: Lab) -> None:
        for host in APPS:
            settings = {
                "address": lab.address(host), "port": PORT, "log": str(lab.folder / f"{host}.log"),
                "work_ms": self.work_ms(host), "calls": [],
            }  # fmt: skip
            lab.start_service(host, settings)
        upstreams = [f"{lab.address(host)}:{PORT}" for host in APPS]
        start_nginx(lab, "web", proxy_config(lab.address("web"), *upstreams, more=self.nginx_more))
        self.ask(lab, 10_000, 10_040)
        empty_logs(lab)
        for host in APPS:
            (lab.folder / f"{host}.log").write_text("")

    def inject(self, lab: Lab) -> None:
        """The fault, after the first requests."""

    def ask(self, lab: Lab, first: int, end: int) -> str:
        """The load."""
        words = ("--first", str(first), "--at-once", str(self.at_once), "--keep", "--pause", "0.01")
        return lab.python("client", "http_client", f"http://{lab.address('web')}", str(end - first), *words)

    def traffic(self, lab: Lab) -> Truth:
        web = f"{lab.address('web')}:80"
        said = self.ask(lab, 0, self.before)
        self.inject(lab)
        calls = logs.client_calls(said + self.ask(lab, self.before, self.count), web)
        lines = nginx_log(lab)
        logs.with_server_times(calls, {line.target: line.took_ns for line in lines}, 1_000_000)
        inner = [call for host in APPS for call in self.service_calls(lab, host, lines)]
        named = {web: r"nginx|http|web:80"} | {call.server: rf".*\b{PORT}" for call in inner}
        truth = Truth(calls=[*calls, *inner], names=named, links_right=0.8)  # all calls look alike
        self.refine(lab, truth, lines)
        return truth

    def service_calls(self, lab: Lab, host: str, lines: Sequence[NginxLine]) -> list[Call]:
        """What one service was asked, by its own log; how long nginx says that took it."""
        address = f"{lab.address(host)}:{PORT}"
        asked = {
            str(logs.number_of(line.target)): took
            for line in lines
            for upstream, took in zip(line.upstreams, line.upstream_ns, strict=False)
            if upstream == address
        }
        found = logs.service_calls(lab.folder / f"{host}.log", address, {}, asked)
        for call in found:
            call.id, call.parent = f"{host} {call.id}", f"client {call.parent}"
            call.client_resolution_ns = 1_000_000
        return found

    def refine(self, lab: Lab, truth: Truth, lines: Sequence[NginxLine]) -> None:
        """What is true of this one alone."""


@scenario
class NginxPoolSlow(NginxPool):
    """The same two replicas, one of them ten times as slow."""

    name = "nginx-pool-slow"
    words = "the same; app2 takes ten times as long"

    def work_ms(self, host: str) -> tuple[float, float]:
        return (50.0, 200.0) if host == "app2" else (5.0, 20.0)

    def refine(self, lab: Lab, truth: Truth, lines: Sequence[NginxLine]) -> None:
        truth.fault = Fault("slow_replica on app2", ("slow_replica", "host_starved"), ("app2",))


class _Failover(NginxPool):
    """app1 is gone, and nginx tries it again each time (max_fails=0)."""

    at_once = 2

    def refine(self, lab: Lab, truth: Truth, lines: Sequence[NginxLine]) -> None:
        gone = f"{lab.address('app1')}:{PORT}"
        tries = [
            took
            for line in lines
            for name, took in zip(line.upstreams, line.upstream_ns, strict=True)
            if name == gone and len(line.upstreams) > 1
        ]
        truth.more["vain_ns"] = sum(tries) / max(1, len(lines))


@scenario
class NginxFailoverRefused(_Failover):
    """app1's process is killed: its kernel refuses."""

    name = "nginx-failover-refused"
    words = "the same; app1 killed, nginx tries the other one (proxy_next_upstream)"

    def inject(self, lab: Lab) -> None:
        for pid in lab.pids("app1", "http_service"):
            os.kill(pid, signal.SIGKILL)

    def refine(self, lab: Lab, truth: Truth, lines: Sequence[NginxLine]) -> None:
        truth.fault = Fault("connection_refused on app1", ("connection_refused",), ("app1",))


@scenario
class NginxFailoverUnanswered(_Failover):
    """The switch drops what would open a connection to app1; nginx gives up connecting after 300 ms."""

    name = "nginx-failover-timeout"
    words = "the same; SYNs to app1 vanish, nginx tries the other one after 300 ms"
    count = 120
    needs = (*NginxPool.needs, ("nft", "nftables"))
    nginx_more = f"{NginxPool.nginx_more} proxy_connect_timeout 300ms;"

    def inject(self, lab: Lab) -> None:
        for pid in lab.pids("app1", "http_service"):
            os.kill(pid, signal.SIGKILL)  # the pool's connections end
        self.drop_syns(lab)

    def drop_syns(self, lab: Lab) -> None:
        """From now on."""
        lab.drop(SWITCH, f"ip daddr {lab.address('app1')} tcp flags syn", "bridge", "forward")

    def refine(self, lab: Lab, truth: Truth, lines: Sequence[NginxLine]) -> None:
        super().refine(lab, truth, lines)
        truth.lost = None  # nothing reaches app1 any more, so no packet shows that its capture still runs
        truth.fault = Fault("connection_unanswered: app1", ("connection_unanswered",), ("app1",))

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        """The stage's time of all requests; a try that ended in vain is no work and no queue of nginx."""
        stages = {stage["stage"]: stage["mean_ns"] for stage in said.report["stages"]}
        vain, true = stages.get("connections to app1 that never came"), truth.more["vain_ns"]
        words = "time a request: waiting for app1 in vain"
        return [Verdict(words, in_ms(true), in_ms(vain), within(vain, (true, true)))]


@scenario
class NginxFailoverFirewall(NginxFailoverUnanswered):
    """A firewall on app1 itself drops them, behind its capture: no listen queue is full."""

    name = "nginx-failover-firewall"
    words = "the same; nft in app1 drops SYNs at input"

    def drop_syns(self, lab: Lab) -> None:
        lab.drop("app1", "tcp dport 8000 tcp flags syn")

    def refine(self, lab: Lab, truth: Truth, lines: Sequence[NginxLine]) -> None:
        _Failover.refine(self, lab, truth, lines)
        truth.lost = 0
        truth.fault = Fault("connections unanswered on app1", ("connection_unanswered", "dropped_in_host"), ("app1",))


@scenario
class NginxFailoverHung(_Failover):
    """app1's process is stopped: its kernel accepts, nobody answers; nginx gives up reading after 400 ms."""

    name = "nginx-failover-hung"
    words = "the same; app1 stopped, nginx tries the other one after 400 ms without an answer"
    count = 30
    nginx_more = f"{NginxPool.nginx_more} proxy_read_timeout 400ms;"

    def inject(self, lab: Lab) -> None:
        for pid in lab.pids("app1", "http_service"):
            os.kill(pid, signal.SIGSTOP)

    def refine_hung(self, truth: Truth, gone: str, lines: Sequence[NginxLine]) -> None:
        """What app1 never took up is in nginx's log alone, in the order in which clients asked."""
        asked_ns = {call.id: call.started_ns for call in truth.calls}
        for line in lines:
            if gone in line.upstreams and len(line.upstreams) > 1:
                parent = f"client {logs.number_of(line.target)}"
                truth.calls.append(
                    Call(f"app1 {line.target}", gone, started_ns=asked_ns[parent], abandoned=True, parent=parent)
                )

    def refine(self, lab: Lab, truth: Truth, lines: Sequence[NginxLine]) -> None:
        kinds = ("server_silent", "unanswered_request", "client_gave_up")
        truth.fault = Fault("app1 answers nothing, nginx gives up", kinds, ("app1",))
        self.refine_hung(truth, f"{lab.address('app1')}:{PORT}", lines)
