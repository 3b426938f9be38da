"""nginx before gunicorn, joined by a pool of kept connections.

Truth: the client's log, nginx's access log ($request_time, ms), gunicorn's (%(D)s, µs). Which request of nginx a call
of gunicorn belongs to is in the target, which is of one request alone.
"""

from benchmarks.real_systems import logs
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Call, Truth
from benchmarks.real_systems.web_servers import (
    GUNICORN_NEEDS,
    NGINX_NEEDS,
    empty_logs,
    gunicorn_log_file,
    nginx_log,
    proxy_config,
    start_gunicorn,
    start_nginx,
)

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
    needs = (NGINX_NEEDS, GUNICORN_NEEDS)
    count, at_once = 200, 6

    def start(self, lab: Lab) -> None:
        start_gunicorn(lab, "app", APP, "--workers", "2", "--threads", "4")
        start_nginx(lab, "web", proxy_config(lab.address("web"), f"{lab.address('app')}:8000"))
        self.ask(lab, first=10_000, count=40)  # the pool is there before the captures begin
        empty_logs(lab, "app")

    def ask(self, lab: Lab, first: int, count: int) -> str:
        """The load."""
        url = f"http://{lab.address('web')}"
        words = ("--first", str(first), "--at-once", str(self.at_once), "--keep")
        return lab.python("client", "http_client", url, str(count), *words)

    def traffic(self, lab: Lab) -> Truth:
        web, app = f"{lab.address('web')}:80", f"{lab.address('app')}:8000"
        calls = logs.client_calls(self.ask(lab, 0, self.count), web)
        log = {line.target: line for line in nginx_log(lab)}
        logs.with_server_times(calls, {target: line.took_ns for target, line in log.items()}, 1_000_000)
        inner = []
        for target, took_us, port, status in logs.split_by_tabs(gunicorn_log_file(lab, "app")):
            number = logs.number_of(target)
            call = Call(f"app {number}", app, target, int(port), number, int(took_us) * 1_000, status=int(status))
            call.client_ns, call.client_resolution_ns = log[target].upstream_ns[0], 1_000_000
            call.parent = f"client {number}"
            inner.append(call)
        named = {web: r"nginx|http|web:80", app: r"gunicorn|app:8000"}
        return Truth(calls=[*calls, *inner], names=named)
