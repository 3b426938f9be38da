"""nginx before gunicorn, joined by a pool of kept connections.

Truth: the client's log, nginx's access log ($request_time, ms), gunicorn's (%(D)s, µs). Which request of nginx a call
of gunicorn belongs to is in the target, which is of one request alone.
"""

from benchmarks.real_systems import logs
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Call, Truth

NGINX = """worker_processes 2; daemon off; user root; pid {folder}/nginx.pid; error_log {folder}/nginx.error;
events {{ worker_connections 1000; }}
http {{
  log_format judge '$request_uri\t$request_time\t$upstream_response_time';
  access_log {folder}/nginx.log judge;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream app {{ server {app}; keepalive 8; }}
  server {{
    listen {address}:80;
    location / {{ proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""
APP = """
import time
def application(environ, start_response):
    number = int(environ["QUERY_STRING"].rpartition("n=")[2])
    time.sleep(0.010 + 0.002 * (number % 20))
    status = "404 Not Found" if number % 25 == 24 else "200 OK"
    start_response(status, [("Content-Length", "600")])
    return [b"x" * 600]
"""


@scenario
class NginxGunicorn(Scenario):
    """200 requests of 6 clients at once, every 25th a 404."""

    name = "nginx-gunicorn"
    words = "nginx, 8 kept connections to gunicorn (4 threads)"
    hosts = addresses(client="10.68.0.10", web="10.68.0.20", app="10.68.0.30")
    needs = (
        ("nginx", "nginx-light"),
        ("gunicorn", "gunicorn"),
    )
    count, at_once = 200, 6

    def start(self, lab: Lab) -> None:
        lab.file("wsgi.py", APP)
        address = f"{lab.address('app')}:8000"
        lab.start(
            "app", "gunicorn", "--chdir", str(lab.folder), "--bind", address, "--workers", "2", "--threads", "4",
            "--keep-alive", "60", "--access-logfile", str(lab.folder / "gunicorn.log"),
            "--access-logformat", "%(U)s?%(q)s\t%(D)s\t%({REMOTE_PORT}e)s\t%(s)s", "wsgi:application", port=8000,
        )  # fmt: skip
        conf = lab.file("nginx.conf", NGINX.format(folder=lab.folder, app=address, address=lab.address("web")))
        lab.start("web", "nginx", "-c", str(conf), port=80)
        self.ask(lab, first=10_000, count=40)  # the pool is there before the captures begin
        for log in ("nginx.log", "gunicorn.log"):
            (lab.folder / log).write_text("")

    def ask(self, lab: Lab, first: int, count: int) -> str:
        """The load."""
        url = f"http://{lab.address('web')}"
        words = ("--first", str(first), "--at-once", str(self.at_once), "--keep")
        return lab.python("client", "http_client", url, str(count), *words)

    def traffic(self, lab: Lab) -> Truth:
        web, app = f"{lab.address('web')}:80", f"{lab.address('app')}:8000"
        calls = logs.client_calls(self.ask(lab, 0, self.count), web)
        log = logs.tabbed(lab.folder / "nginx.log")
        took = {line[0]: round(float(line[1]) * 1e9) for line in log}
        asked = {line[0]: round(float(line[2]) * 1e9) for line in log}
        logs.with_server_times(calls, took, 1_000_000)
        inner = []
        for target, took_us, port, status in logs.tabbed(lab.folder / "gunicorn.log"):
            number = logs.number_of(target)
            call = Call(f"app {number}", app, target, int(port), number, int(took_us) * 1_000, status=int(status))
            call.client_ns, call.client_resolution_ns = asked[target], 1_000_000
            call.parent = f"client {number}"
            inner.append(call)
        named = {web: r"nginx|http|web:80", app: r"gunicorn|app:8000"}
        return Truth(calls=[*calls, *inner], names=named)
