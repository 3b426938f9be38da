"""Debian's nginx and gunicorn on a lab's host, each with a log of its own that has a line for each request."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.real_systems import logs
from benchmarks.real_systems.lab import Lab

NGINX_NEEDS = ("nginx", "nginx-light")
GUNICORN_NEEDS = ("gunicorn", "gunicorn")
_NGINX = """worker_processes {workers}; daemon off; user root; pid {folder}/nginx.pid; error_log {folder}/nginx.error;
events {{ worker_connections 1000; }}
http {{
  log_format judge '$request_uri\\t$request_time\\t$upstream_response_time\\t$upstream_addr\\t$status\\t$remote_port'
    '\\t$http_x_judge';
  access_log {folder}/nginx.log judge;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
{http}
}}
"""


@dataclass(frozen=True, slots=True)
class NginxLine:
    """A request as nginx's log has it; what it asked upstreams, one entry for each try."""

    target: str
    took_ns: int
    upstream_ns: tuple[int, ...]
    upstreams: tuple[str, ...]
    status: int
    client_port: int
    judge: str  # `X-Judge` of the request, "-" if it has none


def start_nginx(lab: Lab, host: str, http: str, port: int = 80, workers: int = 2, below: str = "") -> None:
    """nginx with this inside `http { }`. It is where its log, `nginx_log`, is; files go `below` the lab's folder."""
    conf = lab.file(f"{below}/nginx.conf" if below else "nginx.conf", "")
    conf.write_text(_NGINX.format(folder=conf.parent, http=http, workers=workers), "utf-8")
    lab.start(host, "nginx", "-c", str(conf), port=port)


def proxy_config(address: str, *upstreams: str, keep: int = 8, more: str = "") -> str:
    """An nginx that hands all over to these upstreams, over so many kept connections."""
    servers = " ".join(f"server {upstream} max_fails=0;" for upstream in upstreams)
    return (
        f"  upstream app {{ {servers} keepalive {keep}; }}\n"
        f"  server {{ listen {address}:80; location / {{ proxy_pass http://app; proxy_http_version 1.1; "
        f'proxy_set_header Connection ""; {more} }} }}'
    )


def nginx_log(lab: Lab, below: str = "") -> list[NginxLine]:
    """What nginx's log has by now."""
    return [_nginx_line(*line) for line in logs.split_by_tabs(lab.folder / below / "nginx.log")]


def start_gunicorn(lab: Lab, host: str, app: str, *options: str, port: int = 8000) -> None:
    """gunicorn with this text as its module `wsgi`; its log is `gunicorn_log`."""
    lab.file(f"{host}/wsgi.py", app)
    lab.start(
        host, "gunicorn", "--chdir", str(lab.folder / host), "--bind", f"{lab.address(host)}:{port}",
        "--keep-alive", "60", "--access-logfile", str(gunicorn_log_file(lab, host)),
        "--access-logformat", "%(U)s?%(q)s\t%(D)s\t%({REMOTE_PORT}e)s\t%(s)s", *options, "wsgi:application", port=port,
    )  # fmt: skip


def gunicorn_log_file(lab: Lab, host: str) -> Path:
    """Where gunicorn on a host writes: target, µs, client's port, status."""
    return lab.folder / host / "gunicorn.log"


def empty_logs(lab: Lab, *hosts: str) -> None:
    """Forget what nginx, and gunicorn on these hosts, have logged so far."""
    for log in (lab.folder / "nginx.log", *(gunicorn_log_file(lab, host) for host in hosts)):
        if log.exists():
            log.write_text("")


def _nginx_line(
    target: str, took_s: str, upstream_s: str, upstreams: str, status: str, port: str, judge: str
) -> NginxLine:
    each = tuple(_ns(part) for part in upstream_s.split(", ") if part != "-")
    named = tuple(part for part in upstreams.split(", ") if part != "-")
    return NginxLine(target, _ns(took_s), each, named, int(status), int(port), judge)


def _ns(seconds: str) -> int:
    return round(float(seconds) * 1e9)
