"""Servers that share a port: replicas behind nginx and HAProxy, one of them slow, and services that only look alike.

Truth: the client's log and each service's own, known by the number in the target; a slow server is slow in both runs,
as its service is, or as a fault.
"""

from typing import ClassVar

from benchmarks.real_systems import logs
from benchmarks.real_systems.judge import Verdict
from benchmarks.real_systems.lab import Lab, rest_of
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.systems.haproxy import HAProxy, certificate
from benchmarks.real_systems.truth import Call, Fault, Truth

PORT = 7001
QUICK_MS, SLOW_MS = (5.0, 15.0), (60.0, 90.0)
NGINX = """worker_processes 2; daemon off; user root; pid {folder}/nginx.pid; error_log {folder}/nginx.error;
events {{ worker_connections 1000; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  proxy_http_version 1.1; proxy_set_header Connection "";
{upstreams}
  server {{
    listen {address}:80;
{locations}
  }}
}}
"""
JUDGED = ("first finding", "findings", "service", "words", "products", "packets", "parents", "requests")
"""Not durations: other scenarios have them."""
ELEVEN = tuple(f"s{number}" for number in range(1, 12))


class _Nginx(Scenario):
    """nginx on `web` before services on one port."""

    behind: tuple[str, ...]
    work_ms: ClassVar[dict[str, tuple[float, float]]]
    needs = (("nginx", "nginx-light"),)
    paths: ClassVar[dict[str, tuple[str, ...]]]
    """What nginx sends where: a path, which is cut off, to these hosts."""

    def start(self, lab: Lab) -> None:
        for host in self.behind:
            start_service(lab, host, self.work_ms[host])
        upstreams = "\n".join(
            f"  upstream {path} {{ {' '.join(f'server {lab.address(host)}:{PORT};' for host in hosts)} keepalive 16; }}"
            for path, hosts in self.paths.items()
        )
        locations = "\n".join(
            f"    location /{path}/ {{ proxy_pass http://{path}/; proxy_buffering off; }}" for path in self.paths
        )
        text = NGINX.format(folder=lab.folder, address=lab.address("web"), upstreams=upstreams, locations=locations)
        lab.start("web", "nginx", "-c", str(lab.file("nginx.conf", text)), port=80)

    def traffic(self, lab: Lab) -> Truth:
        web = f"{lab.address('web')}:80"
        loads = [
            lab.begin_python(
                "client", "http_client", f"http://{web}/{path}", "200", "--target", "/item?n={n}", "--first",
                str(1000 * number), "--at-once", "2", "--keep", "--pause", "0.01",
            )
            for number, path in enumerate(self.paths)
        ]  # fmt: skip
        calls = [call for load in loads for call in logs.client_calls(rest_of(load), web)]
        truth = Truth(calls=[*calls, *inner_calls(lab, self.behind)], only=JUDGED)
        truth.names = {web: "nginx|web:80"}
        return truth


@scenario
class NginxPaths(_Nginx):
    """Two services of different work; what nginx asks them looks the same."""

    name = "nginx-two-paths"
    words = "nginx: /orders/ to one host, /users/ to another, same port, the paths cut off; users is slower"
    hosts = addresses(client="10.68.0.10", web="10.68.0.20", orders="10.68.0.31", users="10.68.0.32")
    behind = ("orders", "users")
    work_ms: ClassVar = {"orders": QUICK_MS, "users": SLOW_MS}
    paths: ClassVar = {"orders": ("orders",), "users": ("users",)}

    def traffic(self, lab: Lab) -> Truth:
        truth = super().traffic(lab)
        truth.names |= {f"{lab.address(host)}:{PORT}": f"{host}:{PORT}" for host in self.behind}
        return truth


@scenario
class NginxSlowReplica(_Nginx):
    """The twin: three replicas, one of which is as slow as `users` there."""

    name = "nginx-slow-replica"
    words = "nginx before three replicas, two paths; app3 takes 60 to 90 ms instead of 5 to 15"
    hosts = addresses(client="10.68.0.10", web="10.68.0.20", app1="10.68.0.31", app2="10.68.0.32", app3="10.68.0.33")
    behind = ("app1", "app2", "app3")
    work_ms: ClassVar = {"app1": QUICK_MS, "app2": QUICK_MS, "app3": SLOW_MS}
    paths: ClassVar = {"orders": behind, "users": behind}

    def traffic(self, lab: Lab) -> Truth:
        truth = super().traffic(lab)
        truth.names |= {f"{lab.address(host)}:{PORT}": f"port {PORT}" for host in self.behind}
        truth.fault = Fault("slow_replica on app3", ("slow_replica", "host_starved"), ("app3",))
        return truth


@scenario
class Unrelated(Scenario):
    """Two services on one port, asked by the same service for the same target."""

    name = "unrelated-one-port"
    words = "a Python service asks two unrelated ones on port 7001, both for /check; stock is slower"
    hosts = addresses(client="10.68.0.10", shop="10.68.0.20", users="10.68.0.31", stock="10.68.0.32")
    work_ms: ClassVar = {"users": QUICK_MS, "stock": SLOW_MS}

    def start(self, lab: Lab) -> None:
        for host, work_ms in self.work_ms.items():
            start_service(lab, host, work_ms)
        urls = [f"http://{lab.address(host)}:{PORT}/check" for host in self.work_ms]
        start_service(lab, "shop", (1.0, 2.0), calls=urls)

    def traffic(self, lab: Lab) -> Truth:
        shop = f"{lab.address('shop')}:{PORT}"
        words = ("--at-once", "3", "--keep")
        said = lab.python("client", "http_client", f"http://{shop}", "150", *words)
        calls = logs.client_calls(said, shop)
        callers = {
            call.id: f"client {logs.number_of(call.target)}"
            for call in logs.service_calls(lab.folder / "shop.log", shop, {})
        }
        truth = Truth(calls=calls, only=JUDGED, links_right=0.8)  # all calls look alike, after work of random length
        for host in ("shop", *self.work_ms):
            address = f"{lab.address(host)}:{PORT}"
            truth.names[address] = f"{host}:{PORT}"
            if host != "shop":
                truth.calls += logs.service_calls(lab.folder / f"{host}.log", address, callers)
        return truth


@scenario
class ElevenOverTLS(Unrelated):
    """Eleven services on one port, asked over TLS; each request asks some of them."""

    name = "eleven-tls"
    words = "a Python service asks eleven others on port 7001 over TLS, all at once; their work differs"
    hosts = addresses(
        client="10.68.0.10", shop="10.68.0.20", **{host: f"10.68.0.{30 + n}" for n, host in enumerate(ELEVEN, 1)}
    )
    captured = ("client", "shop")
    needs = (("openssl", "openssl"),)

    def start(self, lab: Lab) -> None:
        tls = certificate(lab)
        for number, host in enumerate(ELEVEN):
            start_service(lab, host, (2.0 + 5 * number, 4.0 + 6 * number), tls=tls)
        urls = [f"https://{lab.address(host)}:{PORT}/check" for host in ELEVEN]
        start_service(lab, "shop", (1.0, 2.0), calls=urls, parallel=True)

    def traffic(self, lab: Lab) -> Truth:
        shop = f"{lab.address('shop')}:{PORT}"
        said = lab.python("client", "http_client", f"http://{shop}", "120", "--at-once", "2", "--keep")
        truth = Truth(calls=logs.client_calls(said, shop), names={shop: f"shop:{PORT}"})
        truth.names |= {f"{lab.address(host)}:{PORT}": rf"{lab.address(host)}:{PORT}" for host in ELEVEN}
        truth.only = ("findings", "service", "words", "products", "packets", "requests of clients")
        return truth


@scenario
class HAProxyTLS(HAProxy):
    """HAProxy's replicas, asked over TLS."""

    name = "haproxy-tls"
    words = "HAProxy, kept TLS connections to three replicas of a Python service"
    needs = (("haproxy", "haproxy"), ("openssl", "openssl"))
    tls = True

    def truth(self, lab: Lab, truth: Truth) -> None:
        truth.only = ("findings", "service", "words", "products", "packets", "requests of clients")

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        return [verdict for verdict in super().judge(said, truth) if verdict.statement.startswith("replicas are one")]


def start_service(
    lab: Lab, host: str, work_ms: tuple[float, float], *, calls: list[str] | None = None, parallel: bool = False,
    tls: str = "", port: int = PORT,
) -> None:  # fmt: skip
    """A Python service that logs to `HOST.log`."""
    lab.start_service(
        host,
        {
            "address": lab.address(host), "port": port, "log": str(lab.folder / f"{host}.log"), "work_ms": work_ms,
            "calls": calls or [], "parallel": parallel, "tls": tls,
        },
    )  # fmt: skip


def inner_calls(lab: Lab, hosts: tuple[str, ...]) -> list[Call]:
    """What services log of what a proxy passed on to them."""
    found = []
    for host in hosts:
        for call in logs.service_calls(lab.folder / f"{host}.log", f"{lab.address(host)}:{PORT}", {}):
            call.id, call.parent = f"{host} {call.id}", f"client {logs.number_of(call.target)}"
            found.append(call)
    return found
