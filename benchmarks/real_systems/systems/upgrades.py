"""Connections that change their protocol, and a server that ends those of HTTP/2.

Truth: the servers' access logs, the clients' own, curl's times.
"""

import json
from typing import ClassVar

from benchmarks.real_systems import logs
from benchmarks.real_systems.interpreter import python_with
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Call, StreamTruth, Truth
from benchmarks.real_systems.verdict import Verdict
from benchmarks.real_systems.web_servers import NGINX_NEEDS, nginx_log, start_nginx

FIELDS = ("url", "local_port", "time_connect", "time_pretransfer", "time_total", "http_code", "http_version")


def _curl(lab: Lab, server: str, targets: list[str], *options: str) -> list[Call]:
    """One curl's requests, in their order, by its own times."""
    form = "{" + ",".join(f'"{name}":"%{{{name}}}"' for name in FIELDS) + "}\\n"
    words = [word for target in targets for word in ("-o", "/dev/null", f"http://{server}{target}")]
    calls = []
    for line in lab.run("client", "curl", "-s", *options, "-w", form, *words).splitlines():
        row = json.loads(line)
        calls.append(
            Call(
                id=f"client {logs.number_of(row['url'])}",
                server=server,
                target=row["url"].removeprefix(f"http://{server}"),
                started_ns=logs.number_of(row["url"]),
                client_ns=round((float(row["time_total"]) - float(row["time_pretransfer"])) * 1e9),
                connect_ns=round(float(row["time_connect"]) * 1e9),
                status=int(row["http_code"]),
                parent="",
            )
        )
    return calls


_SERVICE = """
import asyncio
async def app(scope, receive, send):
    if scope["type"] == "http":
        await asyncio.sleep(0.005)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"x" * 3000})
"""


@scenario
class H2cUpgrade(Scenario):
    """20 curls with 1 to 3 requests; the first asks for HTTP/2 by HTTP/1.1, and is the first stream."""

    name = "h2c-upgrade"
    words = "hypercorn; 20 times `curl --http2` without TLS, 39 requests, each connection changed by its first"
    hosts = addresses(client="10.68.0.10", web="10.68.0.20")
    needs: ClassVar[tuple[tuple[str, str], ...]] = (("curl", "curl"), ("python:hypercorn", "hypercorn"))
    port, count = 8080, 20

    def start(self, lab: Lab) -> None:
        lab.file("service.py", _SERVICE)
        bind = f"exec {python_with('hypercorn')} -m hypercorn --bind {lab.address('web')}:{self.port} service:app"
        lab.start("web", "sh", "-c", f"cd {lab.folder} && {bind}", port=self.port)

    def traffic(self, lab: Lab) -> Truth:
        server = f"{lab.address('web')}:{self.port}"
        calls: list[Call] = []
        for each in range(self.count):
            targets = [f"/file?n={len(calls) + number}" for number in range(1 + each % 3)]
            calls += _curl(lab, server, targets, "--http2")
        return Truth(calls=calls, streams=[])

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        changed = said.table("connections").filter(protocol="http/1.1", changed_to="http/2")
        spoken = said.exchanges["protocol"].unique().to_list()
        return [
            Verdict(
                "connections that changed to http/2", str(self.count), str(len(changed)), len(changed) == self.count
            ),
            Verdict("protocol of the requests", "http/2", ", ".join(spoken), spoken == ["http/2"]),
        ]


_BURST = """
import json, socket, sys, time
import h2.connection, h2.config
for burst in range(int(sys.argv[3])):
    sock = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    one = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    one.initiate_connection()
    sock.sendall(one.data_to_send())
    time.sleep(0.05)
    began, ended, last, alive = {}, {}, None, True
    for number in range(int(sys.argv[4])):
        stream = one.get_next_available_stream_id()
        target = f"/file?n={burst * int(sys.argv[4]) + number}"
        one.send_headers(stream, [(":method", "GET"), (":path", target), (":scheme", "http"), (":authority", "web")],
                         end_stream=True)
        began[stream] = (target, time.time_ns())
    sock.sendall(one.data_to_send())
    buffer = b""
    while alive and len(ended) < len(began):
        data = sock.recv(65536)
        buffer += data
        while len(buffer) >= 9 and len(buffer) >= 9 + int.from_bytes(buffer[:3], "big"):
            length, kind, flags = int.from_bytes(buffer[:3], "big"), buffer[3], buffer[4]
            stream, body = int.from_bytes(buffer[5:9], "big"), buffer[9:9 + length]
            buffer = buffer[9 + length:]
            if kind in (0, 1) and flags & 1:
                ended[stream] = time.time_ns()
            if kind == 7:
                last = int.from_bytes(body[:4], "big")
        alive = bool(data) and not (last is not None and all(each in ended for each in began if each <= last))
    port = sock.getsockname()[1]
    sock.close()
    for stream, (target, at) in began.items():
        print(json.dumps(dict(target=target, port=port, began_ns=at, status=200 if stream in ended else 0,
                              refused=last is not None and stream > last)))
"""


@scenario
class Goaway(Scenario):
    """nginx ends each connection after 6 requests; clients send 10 at once."""

    name = "goaway"
    words = "nginx that serves 6 requests of a connection of HTTP/2, and clients that send 10 at once on each of 8"
    hosts = addresses(client="10.68.0.10", web="10.68.0.20")
    needs: ClassVar[tuple[tuple[str, str], ...]] = (NGINX_NEEDS, ("python:h2", "h2"))
    bursts, of_one, served = 8, 10, 6

    def start(self, lab: Lab) -> None:
        lab.file("files/file", "x" * 900)
        lab.folder.chmod(0o755)
        server = f"listen {lab.address('web')}:80 http2; keepalive_requests {self.served};"
        start_nginx(lab, "web", f"  server {{ {server} location / {{ root {lab.folder}/files; }} }}\n")

    def traffic(self, lab: Lab) -> Truth:
        address = lab.address("web")
        client = str(lab.file("client.py", _BURST))
        words = (address, "80", str(self.bursts), str(self.of_one))
        rows = [json.loads(line) for line in lab.run("client", python_with("h2"), client, *words).splitlines()]
        calls = [
            Call(
                id=row["target"],
                server=f"{address}:80",
                target=row["target"],
                client_port=row["port"],
                started_ns=row["began_ns"],
                status=row["status"],
                name=f"GET {row['target']}",
                result="GOAWAY NO_ERROR" if row["refused"] else "",
                parent="",
            )
            for row in rows
        ]
        refused, logged = sum(row["refused"] for row in rows), len(nginx_log(lab))
        return Truth(calls=calls, more={"refused": refused, "logged": logged})

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        refused, answered = int(truth.more["refused"]), int(truth.more["logged"])
        rows = said.exchanges
        ours, classes = rows.filter(ending="refused_stream"), rows.filter(status_class="refused")
        served = rows.filter(status=200)
        closing = said.table("connections").filter(closing="server: GOAWAY NO_ERROR")
        return [
            Verdict("requests refused by GOAWAY", str(refused), str(len(ours)), len(ours) == refused),
            Verdict("requests of the class refused", str(refused), str(len(classes)), len(classes) == refused),
            Verdict("requests answered (nginx's log)", str(answered), str(len(served)), len(served) == answered),
            Verdict("connections closed by GOAWAY", str(self.bursts), str(len(closing)), len(closing) == self.bursts),
        ]


@scenario
class ConnectProxy(Scenario):
    """12 tunnels with HTTP inside, 6 with TLS."""

    name = "connect-proxy"
    words = "tinyproxy; curl through it by CONNECT: 12 tunnels with HTTP inside, 6 with TLS, 3 requests in each"
    hosts = addresses(client="10.68.0.10", proxy="10.68.0.20", web="10.68.0.30")
    needs = (("curl", "curl"), ("tinyproxy", "tinyproxy"), ("openssl", "openssl"), NGINX_NEEDS)
    plain, secured, of_one = 12, 6, 3

    def start(self, lab: Lab) -> None:
        web, proxy = lab.address("web"), lab.address("proxy")
        lab.file("files/file", "x" * 900)
        lab.folder.chmod(0o755)
        names = ("-keyout", str(lab.folder / "tls.key"), "-out", str(lab.folder / "tls.crt"), "-subj", "/CN=web")
        lab.run("web", "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names)
        secured = f"ssl_certificate {lab.folder}/tls.crt; ssl_certificate_key {lab.folder}/tls.key;"
        files = f"location / {{ root {lab.folder}/files; }}"
        server = f"  server {{ listen {web}:80; listen {web}:443 ssl; {secured} {files} }}\n"
        start_nginx(lab, "web", server)
        conf = f"Port 8888\nListen {proxy}\nMaxClients 50\nAllow 10.68.0.0/16\nConnectPort 80\nConnectPort 443\n"
        lab.start("proxy", "tinyproxy", "-d", "-c", str(lab.file("tinyproxy.conf", conf)), port=8888, name="proxy")

    def traffic(self, lab: Lab) -> Truth:
        web, proxy = lab.address("web"), f"{lab.address('proxy')}:8888"
        number = 0
        for scheme, count in (("http", self.plain), ("https", self.secured)):
            for _ in range(count):
                urls = [f"{scheme}://{web}/file?n={number + each}" for each in range(self.of_one)]
                words = [word for url in urls for word in ("-o", "/dev/null", url)]
                lab.run("client", "curl", "-sk", "-p", "-x", f"http://{proxy}", *words)
                number += self.of_one
        asked = [
            Call(f"tunnel {each}", proxy, f"{web}:{80 if each < self.plain else 443}", started_ns=each, parent="")
            for each in range(self.plain + self.secured)
        ]
        inner = [
            Call(line.target, f"{web}:80", line.target, started_ns=at, parent=None)
            for at, line in enumerate(nginx_log(lab))
            if logs.number_of(line.target) < self.plain * self.of_one
        ]
        secured = [
            Call(f"secured {each}", f"{web}:443", parent=None, started_ns=each)
            for each in range(self.secured * self.of_one)
        ]
        count = self.plain + self.secured
        streams = [StreamTruth(proxy, count, (1, 100_000))]
        # Which tunnel a request of the proxy belongs to, nothing says.
        only = ("requests to", "failed", "abandoned", "streams", "connections", "tunnels", "findings", "packets")
        return Truth(calls=[*asked, *inner, *secured], streams=streams, only=only)

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        to_proxy = said.table("connections").filter(server_port=8888)
        tunnels = [row for row in said.streams if row["reason"] == "tunnel"]
        changed = to_proxy.filter(changed_to="tls")
        inside = {name: sum(row["protocol"] == name for row in tunnels) for name in ("http/1.1", "tls")}
        true = {"http/1.1": self.plain, "tls": self.secured}
        connects = said.exchanges.filter(method="CONNECT", status=200)
        sizes = sorted({*connects["response_bytes"]})
        return [
            Verdict("tunnels, by what is inside", str(true), str(inside), inside == true),
            Verdict(
                "connections that changed to tls", str(self.secured), str(len(changed)), len(changed) == self.secured
            ),
            Verdict("tunnels' bytes in answers to CONNECT", "none", f"{sizes} bytes", bool(sizes) and sizes[-1] < 200),
        ]
