"""Plain Python services on ports that a well-known product also uses: 8080 asks 5000 and then 9000.

Truth: curl's own times, each service's log; which request a call is of, from a header that the product does not know.
"""

from benchmarks.real_systems import logs
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Call, Truth

HOSTS = addresses(client="10.68.0.10", shop="10.68.0.20", users="10.68.0.30", stock="10.68.0.40")
PORTS = {"shop": 8080, "users": 5000, "stock": 9000}
CURL = (
    "for n in $(seq 0 {last}); do began=$(date +%s%N); curl -s -o /dev/null -w '/item?n='$n'\\t%{{local_port}}\\t"
    "%{{time_connect}}\\t%{{time_pretransfer}}\\t%{{time_total}}\\t%{{http_code}}\\t'$began'\\n' "
    "http://{server}/item?n=$n; sleep {pause}; done"
)


def start_services(lab: Lab, work_ms: tuple[float, float] = (8.0, 25.0), parallel: bool = False) -> None:
    """`shop` asks `users` and `stock`."""
    calls = [f"http://{lab.address('users')}:5000/check", f"http://{lab.address('stock')}:9000/count"]
    for host, port in PORTS.items():
        settings = {
            "address": lab.address(host), "port": port, "log": str(lab.folder / f"{host}.log"),
            "work_ms": work_ms, "calls": calls if host == "shop" else [], "parallel": parallel,
        }  # fmt: skip
        lab.start_service(host, settings)


def service_truth(lab: Lab, calls: list[Call]) -> Truth:
    """The services' logs beside the client's. Arguments: calls: the client's."""
    servers = {host: f"{lab.address(host)}:{port}" for host, port in PORTS.items()}
    mine = logs.service_calls(lab.folder / "shop.log", servers["shop"], {})
    by_target = {call.target: call for call in mine}
    for call in calls:
        call.server_ns = by_target[call.target].server_ns
    callers = {call.id: f"client {logs.number_of(call.target)}" for call in mine}
    asked = logs.asked_ns(lab.folder / "shop.log")
    inner = [
        call
        for host in ("users", "stock")
        for call in logs.service_calls(lab.folder / f"{host}.log", servers[host], callers, asked)
    ]
    named = {server: rf"{host}:{PORTS[host]}|{server}|port {PORTS[host]}" for host, server in servers.items()}
    return Truth(calls=[*calls, *inner], names=named)


@scenario
class PythonServices(Scenario):
    """60 curls, one after the other, each over a connection of its own."""

    name = "python-8080"
    words = "three plain Python services on ports 8080, 5000, 9000; curl"
    hosts = HOSTS
    needs = (("curl", "curl"),)

    def start(self, lab: Lab) -> None:
        start_services(lab)

    def traffic(self, lab: Lab) -> Truth:
        server = f"{lab.address('shop')}:8080"
        said = lab.run("client", "sh", "-c", CURL.format(last=59, server=server, pause=0))
        return service_truth(lab, logs.curl_calls(said, server))


@scenario
class IdleConnection(Scenario):
    """8 connections, each opened and used 4 s later, 5 requests on each."""

    name = "idle-connection"
    words = "a Python service; connections opened and first used 4 s later"
    hosts = HOSTS

    def start(self, lab: Lab) -> None:
        start_services(lab)

    def traffic(self, lab: Lab) -> Truth:
        server = f"{lab.address('shop')}:8080"
        words = ("--idle", "4", "--at-once", "4", "--keep", "--pause", "0.1")
        said = lab.python("client", "http_client", f"http://{server}", "40", *words)
        return service_truth(lab, logs.client_calls(said, server))


@scenario
class ServicesAtOnce(Scenario):
    """300 requests of 12 clients at once; both calls of a request in parallel."""

    name = "python-fan-out"
    words = "three plain Python services, two calls at once for each request; 12 clients"
    hosts = HOSTS

    def start(self, lab: Lab) -> None:
        start_services(lab, parallel=True)

    def traffic(self, lab: Lab) -> Truth:
        server = f"{lab.address('shop')}:8080"
        said = lab.python("client", "http_client", f"http://{server}", "300", "--at-once", "12", "--keep")
        truth = service_truth(lab, logs.client_calls(said, server))
        truth.links_right = 0.8  # all calls look alike, and each comes after work of random length
        return truth
