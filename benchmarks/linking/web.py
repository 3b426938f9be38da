"""A system of programs that are not ours, on the cluster's hosts: haproxy, nginx, and a service that asks a Redis.

    client ─▶ haproxy (proxy) ─┬▶ nginx (storage1) ─┬▶ two processes of `app` (storage3) ─┬▶ redis (storage2)
                               └▶ nginx (storage2) ─┘                                     └▶ nginx (storage1), of 60 %

All keep connections and use them again for whatever comes next. `X-Request-ID` goes along with every HTTP request, and
Redis receives none, so ids give the truth of all other links (`benchmarks.linking.by_id`). Needs Debian's `haproxy`,
`nginx-light` and `redis-server`.

    python -m benchmarks.linking.web record FOLDER AT_ONCE COUNT    as `benchmarks.linking.cases` has it
"""

import asyncio
import random
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from aiohttp import ClientSession, TCPConnector, web

from benchmarks.linking.cases import Case
from benchmarks.linking.record import cluster, hosts, keep

PROGRAMS = ("haproxy", "nginx", "redis-server")
ADDRESSES = {"proxy": "10.77.0.20", "storage1": "10.77.0.31", "storage2": "10.77.0.32", "storage3": "10.77.0.33"}
FRONT, BALANCED, APPS, FILES, REDIS = 7100, 7101, (7102, 7103), 7104, 6390
FILE_BYTES = (300, 1_400, 5_000, 20_000, 70_000)
KEYS = 100
REDIS_CONNECTIONS = 8
WORK_S = (0.0005, 0.004)
FILE_SHARE = 0.6
STARTED_S = 10.0

HAPROXY = """global
  nbthread 1
  maxconn 6000
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen front
  bind {proxy}:{front} backlog 4096
  http-reuse always
  balance roundrobin
  server one {storage1}:{balanced}
  server two {storage2}:{balanced}
"""
NGINX = """worker_processes 2;
daemon off;
pid {folder}/pid;
error_log {folder}/error;
events {{ worker_connections 8000; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 100000;
  upstream app {{ {apps} keepalive 32; }}
  server {{
    listen {address}:{balanced} backlog=4096;
    location / {{ proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
  server {{ listen {address}:{files}; root {root}; }}
}}
"""


def record(out: Path, at_once: int, count: int) -> None:
    """One run, kept in `out`."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        raise SystemExit(
            f"linking: not installed: {', '.join(missing)} (apt-get install haproxy nginx-light redis-server)"
        )
    with tempfile.TemporaryDirectory(prefix="twintap-web-") as name, cluster(Path(name)), _system(Path(name)):
        Path(name).chmod(0o755)
        url = f"http://{ADDRESSES['proxy']}:{FRONT}"
        load = (sys.executable, "-m", "benchmarks.linking.web", "load", url, str(at_once), str(count))
        keep(out, Case("web", "", at_once, ""), Path(name), Path(name) / "logs", load)


@contextmanager
def _system(folder: Path) -> Iterator[None]:
    """All programs, running."""
    root = folder / "files"
    root.mkdir()
    for number, size in enumerate(FILE_BYTES):
        (root / f"{number}.bin").write_bytes(bytes(size))
    settings = folder / "haproxy.cfg"
    settings.write_text(HAPROXY.format(front=FRONT, balanced=BALANCED, **ADDRESSES))
    app = (sys.executable, "-m", "benchmarks.linking.web", "serve")
    redis = (
        "redis-server",
        "--port",
        str(REDIS),
        "--bind",
        ADDRESSES["storage2"],
        "--protected-mode",
        "no",
        "--save",
        "",
    )
    wanted = [
        ("storage2", redis, REDIS),
        *(("storage3", (*app, str(port)), port) for port in APPS),
        *((host, ("nginx", "-c", str(_nginx(folder, host, root))), BALANCED) for host in ("storage1", "storage2")),
        ("proxy", ("haproxy", "-db", "-f", str(settings)), FRONT),
    ]
    enter = hosts()
    with ExitStack() as stack:
        for host, words, port in wanted:
            process = subprocess.Popen([*enter[host], *words], stdout=subprocess.DEVNULL)
            stack.callback(_end, process)
            _wait_for(enter[host], ADDRESSES[host], port)
        yield


def _nginx(folder: Path, host: str, root: Path) -> Path:
    own = folder / f"nginx-{host}"
    own.mkdir()
    apps = " ".join(f"server {ADDRESSES['storage3']}:{port};" for port in APPS)
    ports = {"balanced": BALANCED, "files": FILES}
    (own / "nginx.conf").write_text(NGINX.format(folder=own, address=ADDRESSES[host], apps=apps, root=root, **ports))
    return own / "nginx.conf"


def _wait_for(enter: list[str], address: str, port: int) -> None:
    """Until somebody listens there."""
    knock = f"import socket; socket.create_connection(({address!r}, {port}))"
    until = time.monotonic() + STARTED_S
    while subprocess.run([*enter, sys.executable, "-c", knock], capture_output=True, check=False).returncode:
        if time.monotonic() > until:
            raise SystemExit(f"linking: nobody listens on {address}:{port}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.communicate()


def _fill_redis() -> None:
    """Values of some lengths."""
    with socket.create_connection((ADDRESSES["storage2"], REDIS)) as peer:
        for number in range(KEYS):
            key, value = f"k{number}", "v" * (20 + 7 * number)
            words = "".join(f"${len(word)}\r\n{word}\r\n" for word in ("SET", key, value))
            peer.sendall(f"*3\r\n{words}".encode())
            peer.recv(64)


class _Redis:
    """Connections that one request uses at a time."""

    def __init__(self) -> None:
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def connect(self) -> None:
        for _ in range(REDIS_CONNECTIONS):
            self._free.put_nowait(await asyncio.open_connection(ADDRESSES["storage2"], REDIS))

    async def get(self, key: str) -> bytes:
        reader, writer = await self._free.get()
        writer.write(f"*2\r\n$3\r\nGET\r\n${len(key)}\r\n{key}\r\n".encode())
        value = await reader.readexactly(int((await reader.readline())[1:]) + 2)
        self._free.put_nowait((reader, writer))
        return value[:-2]


async def _serve(port: int) -> None:
    redis = _Redis()
    await redis.connect()
    async with ClientSession(connector=TCPConnector(limit=0)) as session:

        async def handle(request: web.Request) -> web.Response:
            body = await redis.get(f"k{random.randrange(KEYS)}")
            await asyncio.sleep(random.uniform(*WORK_S))
            if random.random() < FILE_SHARE:
                url = f"http://{ADDRESSES['storage1']}:{FILES}/{random.randrange(len(FILE_BYTES))}.bin"
                headers = {"X-Request-ID": request.headers["X-Request-ID"]}
                async with session.get(url, headers=headers) as answer:
                    body += await answer.read()
            return web.Response(body=body)

        app = web.Application()
        app.router.add_get("/{any}", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, ADDRESSES["storage3"], port, backlog=4096).start()
        await asyncio.Event().wait()


async def _load(url: str, at_once: int, count: int) -> None:
    waiting = iter(range(count))
    async with ClientSession(connector=TCPConnector(limit=0), raise_for_status=True) as session:

        async def worker() -> None:
            for _ in waiting:
                async with session.get(f"{url}/order", headers={"X-Request-ID": secrets.token_hex(16)}) as answer:
                    await answer.read()

        await asyncio.gather(*(worker() for _ in range(at_once)))


def main(arguments: list[str]) -> None:
    """Record, serve, or make load."""
    match arguments:
        case ["record", folder, at_once, count]:
            record(Path(folder), int(at_once), int(count))
        case ["serve", port]:
            _fill_redis()
            asyncio.run(_serve(int(port)))
        case ["load", url, at_once, count]:
            asyncio.run(_load(url, int(at_once), int(count)))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
