"""nginx before nginx: 16 clients at once ask for blocks of one file.

The first asks a sidecar whether a client may, then the origin where the block is (`X-Accel-Redirect`), then the sidecar
again, and sends the block. The sidecar takes random times, and is asked over the loopback, which is not captured. All
requests have one target, and all answers one length, so only ranges distinguish the requests to the origin. Truth: a
header that nginx hands on and the product does not know; the client's log, and both nginx' access logs (ms).
"""

from typing import ClassVar

from benchmarks.real_systems import logs
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Call, Truth
from benchmarks.real_systems.web_servers import NGINX_NEEDS, empty_logs, nginx_log, start_nginx

PORT = 8000
ORIGIN = "origin"
"""The host, and the folder of its nginx."""
FRONT = """  upstream origin {{ server {origin}:80; keepalive 32; }}
  upstream sidecar {{ server 127.0.0.1:{port}; keepalive 32; }}
  proxy_http_version 1.1; proxy_set_header Connection "";
  server {{
    listen {web}:80;
    location / {{ auth_request /may; proxy_pass http://origin; }}
    location /blocks/ {{ internal; auth_request /may; alias {root}/; }}
    location = /may {{
      internal; proxy_pass http://sidecar/may; proxy_pass_request_body off; proxy_set_header Content-Length "";
      proxy_set_header Range "";
    }}
  }}"""
BEHIND = """  server {{ listen {origin}:80; location / {{ add_header X-Accel-Redirect /blocks/file; return 200; }} }}"""


@scenario
class ByteRanges(Scenario):
    """800 requests of 16 clients."""

    name = "byte-ranges"
    words = "nginx that asks a sidecar and an nginx; 16 clients at once ask for blocks of one file"
    hosts = addresses(client="10.68.0.10", web="10.68.0.20", origin="10.68.0.40")
    needs: ClassVar[tuple[tuple[str, str], ...]] = (NGINX_NEEDS,)
    count, at_once, blocks, block_bytes = 800, 16, 512, 8_192

    def start(self, lab: Lab) -> None:
        settings = {
            "address": "127.0.0.1", "port": PORT, "log": str(lab.folder / "sidecar.log"), "work_ms": (5.0, 60.0),
            "calls": [],
        }  # fmt: skip
        lab.start_service("web", settings)
        lab.file("root/file", "x" * (self.blocks * self.block_bytes))
        named = {host: lab.address(host) for host in ("web", ORIGIN)}
        start_nginx(lab, ORIGIN, BEHIND.format(**named), below=ORIGIN)
        start_nginx(lab, "web", FRONT.format(port=PORT, root=lab.folder / "root", **named))
        self.ask(lab, 10_000, 10_032)
        empty_logs(lab)
        (lab.folder / ORIGIN / "nginx.log").write_text("")

    def ask(self, lab: Lab, first: int, end: int) -> str:
        """The load."""
        words = ("--target", "/file", "--first", str(first), "--at-once", str(self.at_once), "--keep")
        of_it = ("--blocks", str(self.blocks), "--block-bytes", str(self.block_bytes))
        return lab.python("client", "http_client", f"http://{lab.address('web')}", str(end - first), *words, *of_it)

    def traffic(self, lab: Lab) -> Truth:
        web, origin = f"{lab.address('web')}:80", f"{lab.address(ORIGIN)}:80"
        calls = logs.client_calls(self.ask(lab, 0, self.count), web)
        took = {f"client {line.judge}": line.took_ns for line in nginx_log(lab)}
        for call in calls:
            call.server_ns, call.server_resolution_ns = took.get(call.id), 1_000_000
        served = [
            Call(
                f"origin {line.judge}", origin, "/file", line.client_port, place, line.took_ns, 1_000_000,
                status=line.status, parent=f"client {line.judge}",
            )
            for place, line in enumerate(nginx_log(lab, ORIGIN))
        ]  # fmt: skip
        named = {web: r"nginx|http|web:80", origin: r"nginx|http|origin:80"}
        return Truth(calls=[*calls, *served], names=named)
