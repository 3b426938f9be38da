"""nginx that speaks HTTP/2 without TLS (h2c) before a plain Python service; httpx, several requests at once.

Truth: the client's own log, nginx's access log, the service's. HTTP/2 compresses what is asked, so a request is known
by its connection and its place there. Needs an interpreter that has h2 and httpx: this one, or the one that the
environment variable REAL_SYSTEMS_PYTHON names.
"""

from typing import ClassVar

from benchmarks.real_systems import logs
from benchmarks.real_systems.interpreter import python_with
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Call, Truth
from benchmarks.real_systems.web_servers import NGINX_NEEDS, nginx_log, start_nginx

PORT = 8080
SERVER = """  upstream app {{ server {app}:8000; keepalive 8; }}
  server {{
    listen {address}:8080 http2;
    location / {{ proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
"""
CLIENT = """
import asyncio, json, sys, time
import httpx
async def ask(client, number):
    await asyncio.sleep(0.004 * (number % 4))
    target, began = f"/item?n={number}", time.time_ns()
    answer = await client.get(sys.argv[1] + target)
    took = time.time_ns() - began
    port = answer.extensions["network_stream"].get_extra_info("client_addr")[1]
    print(json.dumps(dict(n=number, target=target, port=port, began_ns=began, ended_ns=began + took,
                          status=answer.status_code, connect_ns=None)))
async def of_connection(first):
    async with httpx.AsyncClient(http1=False, http2=True) as client:
        await client.get(sys.argv[1] + "/warm")
        for at in range(first, first + 8, 4):
            await asyncio.gather(*(ask(client, number) for number in range(at, at + 4)))
async def main():
    for first in range(0, int(sys.argv[2]), 8):
        await of_connection(first)
asyncio.run(main())
"""


@scenario
class NginxHttp2(Scenario):
    """10 connections, on each a first request, then twice 4 at once."""

    name = "nginx-http2"
    words = "nginx that speaks HTTP/2 (h2c) before a Python service; httpx, 4 requests at once on a connection"
    hosts = addresses(client="10.68.0.10", web="10.68.0.20", app="10.68.0.30")
    needs: ClassVar[tuple[tuple[str, str], ...]] = (NGINX_NEEDS, ("python:h2", "h2"), ("python:httpx", "httpx"))
    count, of_one = 80, 8

    def start(self, lab: Lab) -> None:
        app, web = lab.address("app"), lab.address("web")
        settings = {
            "address": app, "port": 8000, "log": str(lab.folder / "app.log"), "work_ms": (5.0, 20.0), "calls": [],
        }  # fmt: skip
        lab.start_service("app", settings)
        start_nginx(lab, "web", SERVER.format(app=app, address=web), port=PORT)

    def traffic(self, lab: Lab) -> Truth:
        web, app = f"{lab.address('web')}:{PORT}", f"{lab.address('app')}:8000"
        client = str(lab.file("client.py", CLIENT))
        said = lab.run("client", python_with("h2"), client, f"http://{web}", str(self.count))
        calls = logs.client_calls(said, web)
        log = nginx_log(lab)
        lines = {line.target: line for line in log}
        opening = iter([line for line in log if line.target == "/warm"])  # one after the other
        for call in calls:
            call.server_ns, call.server_resolution_ns = lines[call.target].took_ns, 1_000_000
        ports = {call.client_port for call in calls}
        first = [self._first(web, port, place) for place, port in enumerate(sorted(ports))]
        inner = logs.service_calls(lab.folder / "app.log", app, {})
        parents = {call.target: call.id for call in calls}
        for call in inner:
            call.parent = parents.get(call.target)  # of a connection's first nothing says which it was
            line = lines[call.target] if call.target else next(opening)
            call.client_ns, call.client_resolution_ns = line.upstream_ns[0], 1_000_000
        named = {web: rf"nginx|web:{PORT}", app: r"app:8000|.*\b8000"}
        return Truth(calls=[*first, *calls, *inner], names=named)

    def _first(self, web: str, port: int, place: int) -> Call:
        """The one that opened a connection; nothing logs how long it took."""
        return Call(f"first {place}", web, "", port, started_ns=place, parent="")
