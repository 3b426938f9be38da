"""nginx that speaks TLS 1.2 on one port and 1.3 on another, before a plain Python service; curl.

Truth: curl's times (of the handshake, too), nginx's access log, the service's. Nothing of what is asked is on the wire
in the clear before nginx, so a request is known by its connection and its place there.
"""

import json

from benchmarks.real_systems import logs
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Call, Truth
from benchmarks.real_systems.web_servers import NGINX_NEEDS, nginx_log, start_nginx

PORTS = {"TLSv1.2": 8442, "TLSv1.3": 8443}
SERVER = """  server {{
    listen {address}:{port} ssl; ssl_protocols {version}; ssl_certificate {folder}/tls.crt;
    ssl_certificate_key {folder}/tls.key;
    location / {{ proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
"""
FIELDS = (
    "local_port", "time_connect", "time_appconnect", "time_pretransfer", "time_total", "http_code", "num_connects",
    "url",
)  # fmt: skip


@scenario
class Tls(Scenario):
    """By each version 10 curls, each 4 requests on one connection."""

    name = "tls"
    words = "nginx with TLS 1.2 and 1.3 before a Python service; curl, 4 requests a connection"
    hosts = addresses(client="10.68.0.10", web="10.68.0.20", app="10.68.0.30")
    needs = (NGINX_NEEDS, ("curl", "curl"), ("openssl", "openssl"))
    count, of_one = 10, 4

    def start(self, lab: Lab) -> None:
        app = lab.address("app")
        settings = {
            "address": app, "port": 8000, "log": str(lab.folder / "app.log"), "work_ms": (5.0, 20.0), "calls": [],
        }  # fmt: skip
        lab.start_service("app", settings)
        names = ("-keyout", str(lab.folder / "tls.key"), "-out", str(lab.folder / "tls.crt"), "-subj", "/CN=web")
        lab.run("web", "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names)
        servers = "".join(
            SERVER.format(address=lab.address("web"), port=port, version=version, folder=lab.folder)
            for version, port in PORTS.items()
        )
        start_nginx(lab, "web", f"  upstream app {{ server {app}:8000; keepalive 8; }}\n{servers}", port=8443)

    def traffic(self, lab: Lab) -> Truth:
        web = lab.address("web")
        asked = [(f"{web}:{port}", each) for port in PORTS.values() for each in range(self.count)]
        lines = [(server, line) for place, (server, _) in enumerate(asked) for line in self.curl(lab, server, place)]
        calls = [_call(line, server, order) for order, (server, line) in enumerate(lines)]
        asked_nginx = {f"n={logs.number_of(line.target)}": line for line in nginx_log(lab)}
        for call in calls:
            call.server_ns, call.server_resolution_ns = asked_nginx[call.id].took_ns, 1_000_000
        inner = self.inner(lab)
        for call in inner:
            assert call.parent is not None
            call.client_ns, call.client_resolution_ns = asked_nginx[call.parent].upstream_ns[0], 1_000_000
        named = {f"{web}:{port}": rf"nginx|https?|web:{port}" for port in PORTS.values()}
        named[inner[0].server] = r"app:8000|.*\b8000"
        truth = Truth(calls=[*calls, *inner], names=named)
        spent = sum(_ns(line["time_appconnect"]) - _ns(line["time_connect"]) for _, line in lines) / len(calls)
        truth.ledger = {"tls_ns": (spent, spent)}
        return truth

    def curl(self, lab: Lab, server: str, place: int) -> list[dict[str, str]]:
        """The times of one curl's requests, all on one connection."""
        urls = [f"https://{server}/item?n={place * self.of_one + n}" for n in range(self.of_one)]
        form = "{" + ",".join(f'"{name}":"%{{{name}}}"' for name in FIELDS) + "}\\n"
        words = [word for url in urls for word in ("-o", "/dev/null", url)]
        said = lab.run("client", *self.client(lab), "-sk", "-w", form, *words)
        return [json.loads(line) for line in said.splitlines()]

    def client(self, lab: Lab) -> tuple[str, ...]:
        """The command that asks, without its arguments."""
        return ("curl",)

    def inner(self, lab: Lab) -> list[Call]:
        """What nginx asked the service: it hands the target on."""
        found = logs.service_calls(lab.folder / "app.log", f"{lab.address('app')}:8000", {})
        for call in found:
            call.parent = f"n={logs.number_of(call.target)}"
        return found


def _call(line: dict[str, str], server: str, order: int) -> Call:
    """By curl's times: all that is of opening the connection comes before `time_pretransfer`."""
    call = Call(f"n={logs.number_of(line['url'])}", server, "", int(line["local_port"]), order, parent="")
    call.client_ns, call.status = _ns(line["time_total"]) - _ns(line["time_pretransfer"]), int(line["http_code"])
    call.connect_ns = _ns(line["time_appconnect"]) if line["num_connects"] == "1" else None
    return call


def _ns(seconds: str) -> int:
    return round(float(seconds) * 1e9)
